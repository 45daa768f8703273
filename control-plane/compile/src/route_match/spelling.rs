//! Compares paths of routes with normalized paths byte by byte, in all spellings of [`PathText`].

use std::collections::BTreeSet;

use postern_model::{PathText, Spelling};

/// A piece of a route's path.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Byte(Spelling),
    /// One non-empty segment.
    Segment,
    /// The rest of the path, which may be empty.
    Rest,
}

/// A route's path to compare with: a whole path or a prefix.
#[derive(Debug)]
pub(super) struct Spelled {
    pieces: Vec<Piece>,
    is_prefix: bool,
}

impl Spelled {
    pub(super) fn exact(text: &str) -> Self {
        Self { pieces: bytes(text).collect(), is_prefix: false }
    }

    /// A prefix, which matches whole segments only.
    pub(super) fn prefix(text: &str) -> Self {
        Self { pieces: bytes(text).collect(), is_prefix: true }
    }

    pub(super) fn template(template: &str) -> Self {
        let mut pieces = Vec::new();
        for segment in template.split('/').skip(1) {
            pieces.push(Piece::Byte(Spelling::Plain(b'/')));
            match segment {
                rest if rest.ends_with("=**}") => pieces.push(Piece::Rest),
                name if name.starts_with('{') => pieces.push(Piece::Segment),
                text => pieces.extend(bytes(text)),
            }
        }
        Self { pieces, is_prefix: false }
    }

    /// Whether a path without query matches.
    pub(super) fn fits(&self, path: &[u8]) -> bool {
        let mut places = BTreeSet::from([0]);
        for piece in &self.pieces {
            places = places.iter().flat_map(|place| ends(*piece, path, *place)).collect();
        }
        let ends_with_slash = matches!(self.pieces.last(), Some(Piece::Byte(Spelling::Plain(b'/'))));
        let border = |place: usize| ends_with_slash || path.get(place) == Some(&b'/');
        places.into_iter().any(|place| place == path.len() || (self.is_prefix && border(place)))
    }
}

fn bytes(text: &str) -> impl Iterator<Item = Piece> {
    PathText::read(text).spellings().to_vec().into_iter().map(Piece::Byte)
}

/// The positions at which a piece that starts at `place` can end.
fn ends(piece: Piece, path: &[u8], place: usize) -> Vec<usize> {
    let rest = path.get(place..).unwrap_or_default();
    let plain = |byte: u8| (rest.first() == Some(&byte)).then_some(place + 1);
    let escaped = |byte: u8| {
        let text = format!("%{byte:02x}");
        let start = rest.get(..text.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes())).then_some(place + text.len())
    };
    match piece {
        Piece::Byte(Spelling::Plain(byte)) => plain(byte).into_iter().collect(),
        Piece::Byte(Spelling::Escaped(byte)) => escaped(byte).into_iter().collect(),
        Piece::Byte(Spelling::Either(byte)) => plain(byte).into_iter().chain(escaped(byte)).collect(),
        Piece::Segment => {
            let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            (1..=length).map(|length| place + length).collect()
        }
        Piece::Rest => vec![path.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &Spelled, fits: &[&str], differs: &[&str]) {
        fits.iter().for_each(|text| assert!(path.fits(text.as_bytes()), "{path:?} {text}"));
        differs.iter().for_each(|text| assert!(!path.fits(text.as_bytes()), "{path:?} {text}"));
    }

    #[test]
    fn knows_every_spelling() {
        check(&Spelled::exact("/a@b"), &["/a@b", "/a%40b"], &["/a@", "/a%41b", "/a@b/", "/A@b"]);
        check(&Spelled::exact("/a%2fb"), &["/a%2fb", "/a%2Fb"], &["/a/b"]);
        check(&Spelled::exact("/%"), &["/%", "/%25"], &["/%2", "/%255"]);
    }

    #[test]
    fn ends_a_prefix_at_a_segment() {
        check(&Spelled::prefix("/a"), &["/a", "/a/", "/a/b"], &["/ab", "/", "/a%2fb"]);
        check(&Spelled::prefix("/a/"), &["/a/", "/a/b"], &["/a"]);
        check(&Spelled::prefix("/"), &["/", "/x"], &[]);
    }

    #[test]
    fn fills_in_templates() {
        let keys = Spelled::template("/users/{id}/keys");
        check(&keys, &["/users/7/keys", "/users/7[/keys", "/users/%5b/keys"], &["/users//keys", "/users/7/8/keys"]);
        check(&Spelled::template("/f/{rest=**}"), &["/f/", "/f/a/b"], &["/f"]);
    }
}
