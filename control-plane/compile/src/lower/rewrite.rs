//! Lowers `rewrite`: splits templates into parts.

use postern_base::diagnostic::quote;
use postern_engine::cel::Pattern;
use postern_proto::plan::v1::{
    PrefixRewrite, RegexRewrite, Rewrite, RewritePart, TemplateRewrite, rewrite::Path, rewrite_part::Part, step::Policy,
};

use super::{Lowering, Place, policies::LowerError};
use crate::params::{Regex, RewriteParams, Template};

impl Lowering {
    pub(super) fn rewrite(&mut self, place: &Place<'_>, params: &RewriteParams) -> Result<Policy, LowerError> {
        let mut names = Vec::new();
        let path = match (&params.prefix, &params.template, &params.regex) {
            (None, None, None) if params.host.is_none() => {
                return Err(LowerError::Value("expected one of `prefix`, `template`, `regex`, or `host`"));
            }
            (None, None, None) => None,
            (Some(prefix), None, None) => {
                let segments = |path: &str| path.trim_end_matches('/').to_owned();
                let (from, to) = (self.string(&segments(&prefix.from)), self.string(&segments(&prefix.to)));
                Some(Path::Prefix(PrefixRewrite { from, to }))
            }
            (None, Some(template), None) => self.template(place, template, &mut names),
            (None, None, Some(regex)) => self.regex(place, regex),
            _ => return Err(LowerError::Value("expected only one of `prefix`, `template`, `regex`")),
        };
        let host = params.host.as_deref().map_or_else(Vec::new, |host| self.host(place, host, &names));
        Ok(Policy::Rewrite(Rewrite { path, host, pass_unmatched: params.unmatched == "pass" }))
    }

    fn host(&mut self, place: &Place<'_>, host: &str, names: &[String]) -> Vec<RewritePart> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:[]{}".contains(c);
        if host.is_empty() || !host.chars().all(fits) {
            let message = format!("expected a host name, perhaps with a port, found {}", quote(host));
            self.error(place, "params.host", message);
        }
        if host.split_once([':', '[', ']']).is_some_and(|(_, behind)| behind.contains('{')) {
            let message = format!("no `{{name}}` can be part of a port or an address: {}", quote(host));
            self.error(place, "params.host", message);
        }
        self.named_parts(place, "params.host", host, names)
    }

    fn template(&mut self, place: &Place<'_>, template: &Template, names: &mut Vec<String>) -> Option<Path> {
        let (mut segments, mut rest) = (Vec::new(), false);
        for segment in template.matching.trim_start_matches('/').split('/') {
            let inside = segment.strip_prefix('{').and_then(|inside| inside.strip_suffix('}'));
            let problem = match inside {
                _ if rest => Some("nothing comes behind all the rest"),
                None if segment.contains(['{', '}']) => Some("a `{name}` is a whole segment"),
                None => {
                    segments.push(self.string(segment).saturating_add(1));
                    None
                }
                Some(inside) => {
                    rest = inside.ends_with("=**");
                    let name = inside.strip_suffix("=**").unwrap_or(inside);
                    let (taken, fits) = (names.iter().any(|known| known == name), is_name(name));
                    names.push(name.to_owned());
                    segments.push(0);
                    (taken || !fits).then_some("a `{name}` is of letters, digits and `_`, and there once")
                }
            };
            if let Some(problem) = problem {
                self.error(place, "params.template.match", format!("{problem}: {}", quote(segment)));
                return None;
            }
        }
        let to = self.named_parts(place, "params.template.to", &template.to, names);
        Some(Path::Template(TemplateRewrite { segments, rest, to }))
    }

    fn regex(&mut self, place: &Place<'_>, regex: &Regex) -> Option<Path> {
        let groups = match Pattern::compile(&regex.pattern) {
            Ok(pattern) if pattern.cost_of_captures(1) > self.steps_of_request() => {
                let message =
                    format!("{} takes more steps than a request has: it can only ever fail", quote(&regex.pattern));
                self.error(place, "params.regex.pattern", message);
                return None;
            }
            Ok(pattern) => pattern.groups(),
            Err(reason) => {
                let message = format!("{} is no regular expression: {reason}", quote(&regex.pattern));
                self.error(place, "params.regex.pattern", message);
                return None;
            }
        };
        let (mut to, mut text, mut characters) = (Vec::new(), String::new(), regex.substitution.chars());
        while let Some(character) = characters.next() {
            match (character, (character == '\\').then(|| characters.next()).flatten()) {
                ('\\', Some('\\')) => text.push('\\'),
                ('\\', Some(digit)) if digit.to_digit(10).is_some_and(|digit| (digit as usize) < groups) => {
                    to.push(self.text_part(&std::mem::take(&mut text)));
                    to.push(RewritePart { part: digit.to_digit(10).map(Part::Capture) });
                }
                ('\\', other) => {
                    let other = other.map(String::from).unwrap_or_default();
                    let message = format!("{} names no group of the pattern", quote(&format!("\\{other}")));
                    self.error(place, "params.regex.substitution", message);
                    return None;
                }
                _ => text.push(character),
            }
        }
        to.push(self.text_part(&text));
        Some(Path::Regex(RegexRewrite { pattern: self.string(&regex.pattern), to }))
    }

    /// Splits a text with `{name}` placeholders. Reports names that are not in `names`.
    fn named_parts(&mut self, place: &Place<'_>, field: &str, text: &str, names: &[String]) -> Vec<RewritePart> {
        let mut pieces = text.split('{');
        let mut parts = Vec::new();
        parts.extend(pieces.next().filter(|piece| !piece.is_empty()).map(|piece| self.text_part(piece)));
        for piece in pieces {
            let name =
                piece.split_once('}').map(|(name, behind)| (names.iter().position(|known| known == name), behind));
            let Some((Some(index), behind)) = name else {
                let known = names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
                self.error(place, field, format!("{} has a name that the template has not ({known})", quote(text)));
                return parts;
            };
            parts.push(RewritePart { part: u32::try_from(index).ok().map(Part::Capture) });
            if !behind.is_empty() {
                parts.push(self.text_part(behind));
            }
        }
        parts
    }

    fn text_part(&mut self, text: &str) -> RewritePart {
        RewritePart { part: Some(Part::Text(self.string(text))) }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
