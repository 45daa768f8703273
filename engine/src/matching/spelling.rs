//! The spellings of a path: all forms that normalizing proxies and upstreams could make of it.
//!
//! How an Envoy with routes of its own normalizes paths is not known here, and neither is what its upstreams do. So the
//! forms are all that any sequence of the usual rewrites can make: a request for which they disagree is refused.

/// How many bytes of forms are looked at. It bounds the work for one request.
const MOST_BYTES: usize = 32 << 10;
/// How many forms are looked at.
const MOST_FORMS: usize = 128;

/// What proxies and upstreams are known to do to a path. None of it makes a path longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewrite {
    /// Decodes the escapes of letters, digits and `-._~`: Envoy's `normalize_path`.
    Unreserved,
    /// Decodes escaped slashes: Envoy's action for them.
    Slashes,
    /// Decodes all escapes, once.
    Escapes,
    /// Takes `\` for `/`.
    Backslashes,
    /// Removes the parameters of all segments.
    Parameters,
    /// Removes the parameters of the last segment.
    LastParameters,
    /// Removes the parameters of dot segments: Envoy again.
    DotParameters,
    /// Merges slashes.
    Merge,
    /// Removes dot segments (RFC 3986, section 5.2.4). `..` removes an empty segment like any other.
    Dots,
    /// Ends the path at `?` or `#`.
    Cut,
    /// Ends the path at the first `;`.
    CutParameters,
    /// Takes what follows `//` for a host, as parsers of URLs do.
    Authority,
}

impl Rewrite {
    const ALL: [Self; 12] = [
        Self::Unreserved,
        Self::Slashes,
        Self::Escapes,
        Self::Backslashes,
        Self::Parameters,
        Self::LastParameters,
        Self::DotParameters,
        Self::Merge,
        Self::Dots,
        Self::Cut,
        Self::CutParameters,
        Self::Authority,
    ];

    #[inline(never)]
    fn of(self, path: &[u8]) -> Vec<u8> {
        match self {
            Self::Unreserved | Self::Slashes | Self::Escapes => self.unescape(path),
            Self::Backslashes => path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect(),
            Self::Cut => before(path, |byte| matches!(byte, b'?' | b'#')).to_vec(),
            Self::CutParameters => before(path, |byte| byte == b';').to_vec(),
            Self::Authority => without_authority(path).to_vec(),
            _ => self.segmentwise(path),
        }
    }

    /// Decodes the escapes that the rewrite is for, once.
    fn unescape(self, text: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
        while let Some((first, after)) = rest.split_first() {
            let is_meant = |byte: u8| match self {
                Self::Unreserved => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~'),
                Self::Slashes => matches!(byte, b'/' | b'\\'),
                _ => true,
            };
            let (byte, after) = escaped(*first, after).filter(|(byte, _)| is_meant(*byte)).unwrap_or((*first, after));
            out.push(byte);
            rest = after;
        }
        out
    }

    fn segmentwise(self, path: &[u8]) -> Vec<u8> {
        let mut kept: Vec<&[u8]> = Vec::new();
        let mut rest = path.strip_prefix(b"/");
        while let Some(segment) = next_segment(&mut rest) {
            let is_last = rest.is_none();
            let bare = before(segment, |byte| byte == b';');
            let segment = match self {
                Self::Parameters => bare,
                Self::LastParameters if is_last => bare,
                Self::DotParameters if is_dots(bare) => bare,
                Self::Merge if segment.is_empty() && !is_last => continue,
                Self::Dots if is_dots(segment) => {
                    if segment.len() > 1 {
                        kept.pop();
                    }
                    if is_last { b"" } else { continue }
                }
                _ => segment,
            };
            kept.push(segment);
        }
        let mut out = Vec::with_capacity(path.len());
        for segment in kept {
            out.push(b'/');
            out.extend_from_slice(segment);
        }
        out
    }
}

/// The segment up to the next slash. Without one, it is the last, and the rest is `None`.
#[inline(never)]
fn next_segment<'p>(rest: &mut Option<&'p [u8]>) -> Option<&'p [u8]> {
    let path = rest.take()?;
    let segment = before(path, |byte| byte == b'/');
    *rest = path.get(segment.len().saturating_add(1)..);
    Some(segment)
}

/// All forms of a path without query, the path itself first. `None` if they are too many to look at, or if one of them
/// is no path: it does not start with `/`, or has a control character.
pub(super) fn forms(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut forms = vec![path.to_vec()];
    if is_plain(path) {
        return path.starts_with(b"/").then_some(forms);
    }
    let (mut at, mut bytes) = (0_usize, 0_usize);
    while let Some(form) = forms.get(at).cloned() {
        bytes = bytes.saturating_add(form.len());
        if bytes > MOST_BYTES
            || forms.len() > MOST_FORMS
            || !form.starts_with(b"/")
            || form.iter().any(u8::is_ascii_control)
        {
            return None;
        }
        for rewrite in Rewrite::ALL {
            let rewritten = rewrite.of(&form);
            if !forms.contains(&rewritten) {
                forms.push(rewritten);
            }
        }
        at = at.saturating_add(1);
    }
    Some(forms)
}

/// Whether no rewrite changes a path, as far as a glance tells.
fn is_plain(path: &[u8]) -> bool {
    let odd = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'%' | b'\\' | b';' | b'#' | b'?');
    !path.iter().any(odd) && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// The segments of a form. A slash at the end of a path does not count.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let mut rest = (!path.is_empty()).then_some(path);
    std::iter::from_fn(move || next_segment(&mut rest))
}

/// A text without its escapes.
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    Rewrite::Escapes.unescape(text)
}

fn escaped(first: u8, after: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], rest) = after.split_first_chunk().filter(|_| first == b'%')?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(((digit(*high)? << 4) | digit(*low)?, rest))
}

fn before(text: &[u8], is_end: impl Fn(u8) -> bool) -> &[u8] {
    let end = text.iter().position(|byte| is_end(*byte)).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

/// A path without the host that it has behind `//`.
fn without_authority(path: &[u8]) -> &[u8] {
    let Some(mut rest) = path.strip_prefix(b"//") else { return path };
    while let Some(more) = rest.strip_prefix(b"/") {
        rest = more;
    }
    let host = before(rest, |byte| byte == b'/').len();
    rest.get(host..).filter(|path| !path.is_empty()).unwrap_or(b"/")
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &[&str]) {
        let forms = forms(path.as_bytes()).unwrap_or_default();
        for form in expect {
            assert!(forms.contains(&form.as_bytes().to_vec()), "{path}: {form} is not among {}", shown(&forms));
        }
    }

    fn shown(forms: &[Vec<u8>]) -> String {
        forms.iter().map(|form| String::from_utf8_lossy(form).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn knows_what_others_make_of_a_path() {
        check("/x/../admin", &["/x/../admin", "/admin"]);
        check("/x/..%2fadmin", &["/x/../admin", "/admin"]);
        check("/x/..%252Fadmin", &["/x/..%2Fadmin", "/admin"]);
        check("/%61dmin", &["/admin"]);
        check("/a%2fb%61%3b", &["/a%2fba%3b", "/a/b%61%3b", "/a/ba;"]);
        check("//admin", &["/admin"]);
        check("/a//../b", &["/a/b", "/b"]);
        check("/admin;x/y;z", &["/admin/y", "/admin;x/y"]);
        check("/p/q;x/..;y/s", &["/p/s", "/p/q;x/../s"]);
        check("/x\\..\\admin", &["/admin"]);
        check("/x%5c..%5cadmin", &["/admin"]);
        check("/admin%3fx", &["/admin"]);
        check("/admin%23x", &["/admin"]);
        check("/admin/.", &["/admin/"]);
        check("/x/..", &["/"]);
        check("/../../admin", &["/admin"]);
        check("//x/admin", &["/admin", "/x/admin"]);
        check("///x/admin", &["/admin"]);
        check("/\\x/admin", &["/admin"]);
        check("/%2fx/admin", &["/admin"]);
        check("//admin", &["/", "/admin"]);
        check("/admin;x/y", &["/admin", "/admin/y"]);
    }

    #[test]
    fn a_plain_path_has_one_form() {
        for path in ["/", "/admin", "/a.b/c-d/", "/a/b..", "/a..b", "/@me"] {
            assert_eq!(forms(path.as_bytes()), Some(vec![path.as_bytes().to_vec()]), "{path}");
        }
        assert_eq!(forms(b"/.well-known/x").map(|forms| forms.len()), Some(1));
    }

    #[test]
    fn refuses_what_is_no_path_or_too_much() {
        for path in [
            "",
            "*",
            "admin",
            "\\admin",
            "http://a/admin",
            "/a%00",
            "/a\0",
            "/a%0a",
            "/a%250a",
            "/a%7f",
            "/a\n",
            "%2fadmin",
        ] {
            assert_eq!(forms(path.as_bytes()), None, "{path}");
        }
        // Every level of escapes is a form.
        assert!(forms(format!("/%{}2e", "25".repeat(500)).as_bytes()).is_none());
        assert!(forms(format!("/{}", "%41;x//".repeat(8_000)).as_bytes()).is_none());
    }

    #[test]
    fn splits_into_segments() {
        let check = |path: &str, expect: &[&str]| {
            let found: Vec<_> = segments(path.as_bytes()).map(unescaped).collect();
            assert_eq!(found, expect.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>(), "{path}");
        };
        check("/", &[]);
        check("/a", &["a"]);
        check("/a/", &["a"]);
        check("/a%20b/c%2fd", &["a b", "c/d"]);
        check("//a", &["", "a"]);
        check("/100%", &["100%"]);
    }
}
