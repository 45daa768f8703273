//! Where in a plan an error is, and how one line of a log says so to a program: whoever made the plan finds the resource by
//! it, and needs to read no prose.
//!
//! The site stands behind the words, in brackets: `plan refused: … [at=1;chain=3;phase=request;step=api%20key]`. The number
//! is the version of the form. Names are escaped, so that no name can end the site or look like another one, and it is the
//! last thing on the line, so that no words can either.

use std::{fmt, sync::Arc};

use crate::event::Phase;

/// What a site begins with: the first version of the form.
const OPEN: &str = " [at=1";

/// Where in a plan an error is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Site {
    /// In none of the following.
    #[default]
    Elsewhere,
    /// In a chain.
    Chain {
        /// Its place among the chains.
        index: usize,
        /// The phase, if it is in one.
        phase: Option<Phase>,
        /// The name of the step, if it is in one.
        step: Option<Arc<str>>,
    },
    /// In the consumer of this name.
    Consumer(Arc<str>),
    /// In the issuer of this name.
    Issuer(Arc<str>),
}

impl Site {
    /// Splits a line into its words and the site behind them. The site is `None` if there is none, or one of another form;
    /// of these the words are the whole line.
    pub fn split(line: &str) -> (&str, Option<Self>) {
        let found = line.rfind(OPEN).and_then(|place| line.split_at_checked(place));
        let read = found.and_then(|(words, site)| {
            let fields = site.strip_prefix(OPEN)?.strip_suffix(']')?;
            Some((words, Self::read(fields)?))
        });
        read.map_or((line, None), |(words, site)| (words, Some(site)))
    }

    /// Reads fields in the order in which they are written.
    fn read(fields: &str) -> Option<Self> {
        let mut fields = fields.split(';');
        // What stands before the first semicolon would belong to the version.
        fields.next().filter(|rest| rest.is_empty())?;
        let Some(first) = fields.next() else { return Some(Self::Elsewhere) };
        let site = match first.split_once('=')? {
            ("chain", index) => {
                let mut next = fields.next();
                let phase = match next {
                    Some("phase=request") => Some(Phase::Request),
                    Some("phase=response") => Some(Phase::Response),
                    _ => None,
                };
                if phase.is_some() {
                    next = fields.next();
                }
                let step = match next {
                    Some(step) => Some(unescape(step.strip_prefix("step=")?)?),
                    None => None,
                };
                Self::Chain { index: index.parse().ok()?, phase, step }
            }
            ("consumer", name) => Self::Consumer(unescape(name)?),
            ("issuer", name) => Self::Issuer(unescape(name)?),
            _ => return None,
        };
        fields.next().is_none().then_some(site)
    }
}

/// The site as it is written behind words, with the space in between.
impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(OPEN)?;
        match self {
            Self::Elsewhere => {}
            Self::Chain { index, phase, step } => {
                write!(formatter, ";chain={index}")?;
                if let Some(phase) = phase {
                    formatter.write_str(";phase=")?;
                    formatter.write_str(phase.name())?;
                }
                if let Some(step) = step {
                    field(formatter, ";step=", step)?;
                }
            }
            Self::Consumer(name) => field(formatter, ";consumer=", name)?,
            Self::Issuer(name) => field(formatter, ";issuer=", name)?,
        }
        formatter.write_str("]")
    }
}

/// A name, escaped as in a URI: what remains as it is has no meaning in a site, and stands in no one's way in a log.
fn field(formatter: &mut fmt::Formatter<'_>, key: &str, name: &str) -> fmt::Result {
    formatter.write_str(key)?;
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' => {
                fmt::Write::write_char(formatter, byte.into())?
            }
            _ => write!(formatter, "%{byte:02X}")?,
        }
    }
    Ok(())
}

/// The name that was escaped so; `None` if nothing is.
fn unescape(text: &str) -> Option<Arc<str>> {
    let mut parts = text.split('%');
    let mut name = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        name.push(u8::from_str_radix(digits, 16).ok()?);
        name.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(name).ok().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, words: &str, site: Option<Site>) {
        assert_eq!(Site::split(line), (words, site), "{line}");
    }

    #[test]
    fn reads_well() {
        let site = Site::Chain { index: 3, phase: Some(Phase::Request), step: Some("api key".into()) };
        assert_eq!(site.to_string(), " [at=1;chain=3;phase=request;step=api%20key]");
        assert_eq!(Site::Issuer("ä;]".into()).to_string(), " [at=1;issuer=%C3%A4%3B%5D]");
        assert_eq!(Site::Elsewhere.to_string(), " [at=1]");
    }

    #[test]
    fn takes_nothing_else_for_a_site() {
        for line in [
            "",
            "odd",
            "odd ]",
            "odd [at=1",
            "odd [at=2;chain=1]",
            "odd [at=12]",
            "odd [at=1;]",
            "odd [at=1;chain=x]",
            "odd [at=1;chain=-1]",
            "odd [at=1;chain=1;step=%4]",
            "odd [at=1;chain=1;step=%FF]",
            "odd [at=1;chain=1;x=1]",
            "odd [at=1;consumer=a;consumer=b]",
            "odd [at=1;step=a]",
            "odd [at=1;consumer=a] and more",
            "odd[at=1]",
        ] {
            check(line, line, None);
        }
        check("odd [at=1;chain=1] [at=1]", "odd [at=1;chain=1]", Some(Site::Elsewhere));
    }

    /// Names and words made of every two of these, among them all that has a meaning in a site.
    const PIECES: [&str; 16] =
        ["", "a", " ", "[at=1", "]", ";", "=", "%", "%2", "%41", "\n", "\"", "ä\u{0}", "`: ", "step=", ";chain=7"];

    fn texts() -> impl Iterator<Item = String> + Clone {
        PIECES.into_iter().flat_map(|one| PIECES.map(|other| format!("{one}{other}")))
    }

    fn sites(name: &Arc<str>) -> Vec<Site> {
        let mut sites = vec![Site::Elsewhere, Site::Consumer(Arc::clone(name)), Site::Issuer(Arc::clone(name))];
        for phase in [None, Some(Phase::Request), Some(Phase::Response)] {
            for step in [None, Some(Arc::clone(name))] {
                sites.extend([0, usize::MAX].map(|index| Site::Chain { index, phase, step: step.clone() }));
            }
        }
        sites
    }

    #[test]
    fn reads_back_any_site_behind_any_words() {
        for name in texts().map(Arc::from) {
            for site in sites(&name) {
                check(&format!("{name}{site}"), &name, Some(site.clone()));
                check(&format!("odd{site}{site}"), &format!("odd{site}"), Some(site));
            }
        }
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        let site = Site::Chain { index: 1, phase: None, step: Some(all.clone().into()) };
        check(&format!("{all}{site}"), &all, Some(site));
    }

    #[test]
    fn no_line_is_too_odd() {
        for (one, other) in texts().flat_map(|one| texts().map(move |other| (one.clone(), other))) {
            let line = format!("{one} {other}]");
            let (words, site) = Site::split(&line);
            assert!(line.starts_with(words) && (site.is_some() || words == line), "{line}");
        }
    }
}
