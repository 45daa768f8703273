//! How much of what strangers say is kept, logged and repeated to them.

use std::borrow::Cow;

use serde::{Deserialize as _, Deserializer, de::Error as _};

/// The longest name that is taken: of nodes, services, meshes, tags, places, types and clients, in bytes.
pub const NAME: usize = 256;
/// The longest name of a resource that is taken, in bytes: one of ours is made of up to four names.
pub const RESOURCE_NAME: usize = 4 * NAME;
/// The longest message of others that is kept, in bytes: what an Envoy says about a refusal.
pub(crate) const MESSAGE: usize = 4096;

/// What stands at the end of a message that was cut.
const MARK: &str = "… (cut)";

/// A name that can be shown and logged: cut after [`NAME`] bytes, with a mark.
pub fn shown(name: &str) -> Cow<'_, str> {
    cut(name, NAME)
}

/// A message that can be kept and logged: cut after [`MESSAGE`] bytes, with a mark.
pub fn message(text: String) -> String {
    if text.len() <= MESSAGE { text } else { cut(&text, MESSAGE).into_owned() }
}

/// Reads a name that may not be longer than [`NAME`].
pub fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    read(from, NAME)
}

/// Reads a text that may not be longer than [`MESSAGE`].
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

/// At most so many bytes of a text, mark included.
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
    fn cuts_between_characters_and_says_so() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"n".repeat(NAME)), "n".repeat(NAME));
        let cut = shown(&"ü".repeat(NAME)).into_owned();
        assert!(cut.ends_with(MARK) && cut.len() <= NAME && cut.starts_with("üü"), "{cut}");
        let message = message("m".repeat(4_000_000));
        assert!(message.ends_with(MARK) && message.len() == MESSAGE && message.capacity() < 2 * MESSAGE);
    }
}
