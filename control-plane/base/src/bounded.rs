//! Limits on names and messages that come from clients: how much of them is kept, logged and repeated.

use std::borrow::Cow;

use serde::{Deserialize as _, Deserializer, de::Error as _};

/// The longest accepted name of a node, service, mesh, tag, place, type or client, in bytes.
pub const NAME: usize = 256;
/// The longest accepted name of a resource, in bytes. A name that we generate consists of up to four names.
pub const RESOURCE_NAME: usize = 4 * NAME;
/// The longest message of a client that is kept, in bytes, such as an Envoy's reason for a refusal.
pub(crate) const MESSAGE: usize = 4096;

/// The end of a text that was cut.
const MARK: &str = "… (cut)";

/// A name for messages and logs, cut to [`NAME`] bytes. A name that was cut ends with a mark.
pub fn shown(name: &str) -> Cow<'_, str> {
    cut(name, NAME)
}

/// A message to be kept or logged, without blank lines, and cut to [`MESSAGE`] bytes. A message that was cut ends with a
/// mark.
pub fn message(text: String) -> String {
    let text = if text.contains('\n') { without_blank_lines(&text) } else { text };
    if text.len() <= MESSAGE { text } else { cut(&text, MESSAGE).into_owned() }
}

/// The lines that have something in them, without the white space at their ends. Envoy joins its reasons with blank
/// lines between them.
fn without_blank_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// Deserializes a name. An error if it is longer than [`NAME`].
pub fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    read(from, NAME)
}

/// Deserializes a message. An error if it is longer than [`MESSAGE`].
pub fn read_message<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    read(from, MESSAGE)
}

fn read<'de, D: Deserializer<'de>>(from: D, most: usize) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() > most {
        return Err(D::Error::custom(format!("{} bytes are too long: at most {most} are taken", text.len())));
    }
    Ok(text)
}

/// The text, cut between characters to at most `most` bytes including the mark.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(most.saturating_sub(MARK.len()));
    Cow::Owned(text.get(..end).unwrap_or_default().to_owned() + MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_blank_lines_out_of_messages() {
        let reasons = "Error adding/updating listener(s) a: no \n\n b: wrong\r\n\n\n";
        assert_eq!(message(reasons.to_owned()), "Error adding/updating listener(s) a: no\n b: wrong");
        assert_eq!(message("one line ".to_owned()), "one line ");
    }

    #[test]
    fn cuts_between_characters_and_says_so() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"n".repeat(NAME)), "n".repeat(NAME));
        let cut = shown(&"ü".repeat(NAME)).into_owned();
        assert!(cut.ends_with(MARK) && cut.len() <= NAME && cut.starts_with("üü"), "{cut}");
        let message = message("m".repeat(4_000_000));
        assert!(message.ends_with(MARK) && message.len() == MESSAGE && message.capacity() < 2 * MESSAGE);
    }
}
