//! Lowers `respond`: splits templates into parts, so that each value is escaped for its context.

use std::collections::BTreeMap;

use postern_base::diagnostic::quote;
use postern_proto::plan::v1::{Answer, PrefixRewrite, Redirect, Respond, TemplateEscape, TemplatePart, step::Policy};

use super::{Lowering, Place, policies::LowerError};
use crate::params::{RedirectParams, RespondParams};

const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const MOST_PARTS: usize = 128;

impl Lowering {
    pub(super) fn respond(&mut self, place: &Place<'_>, params: &RespondParams) -> Result<Policy, LowerError> {
        let RespondParams { status, headers, body, template, redirect } = params;
        let forms = [body.is_some(), template.is_some(), redirect.is_some()];
        if forms.into_iter().filter(|form| *form).count() > 1 {
            return Err(LowerError::Value("expected only one of `body`, `template`, `redirect`"));
        }
        if redirect.is_some() && status.is_some() {
            return Err(LowerError::Value("a redirect's status is `redirect.status`"));
        }
        let parts = template.as_deref().map_or_else(Vec::new, |text| self.template_parts(place, text, headers));
        let status = redirect.as_ref().map(|redirect| redirect.status).or(*status).unwrap_or_default();
        let answer = Answer {
            status: status.into(),
            headers: self.header_values(headers),
            body: self.string(body.as_deref().unwrap_or_default()),
        };
        let redirect = redirect.as_ref().map(|redirect| self.redirect(place, redirect));
        Ok(Policy::Respond(Respond { answer: Some(answer), redirect, template: parts }))
    }

    fn redirect(&mut self, place: &Place<'_>, params: &RedirectParams) -> Redirect {
        let mut complain =
            |field: &str, message: String| self.error(place, &format!("params.redirect.{field}"), message);
        if !STATUSES.contains(&params.status) {
            complain("status", "expected one of 301, 302, 303, 307, 308".to_owned());
        }
        let rest = [params.scheme.is_some(), params.host.is_some(), params.path.is_some(), params.prefix.is_some()];
        match &params.to {
            Some(to) if !is_target(to) => {
                let message =
                    format!("expected `http://…`, `https://…` or a path that starts with one `/`, found {}", quote(to));
                complain("to", message);
            }
            Some(_) if rest.contains(&true) => {
                complain("to", "`to` is the whole target: nothing else can say more".to_owned());
            }
            None if !rest.contains(&true) => complain("to", "expected where to go".to_owned()),
            _ => {}
        }
        if params.path.is_some() && params.prefix.is_some() {
            complain("path", "expected only one of `path`, `prefix`".to_owned());
        }
        let is_host =
            |host: &str| !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        if let Some(host) = params.host.as_deref().filter(|host| !is_host(host)) {
            complain("host", format!("expected a host name, perhaps with a port, found {}", quote(host)));
        }
        let prefix = params.prefix.as_ref().map(|prefix| PrefixRewrite {
            from: self.string(prefix.from.trim_end_matches('/')),
            to: self.string(prefix.to.trim_end_matches('/')),
        });
        let mut string = |text: &Option<String>| self.string(text.as_deref().unwrap_or_default());
        Redirect {
            to: string(&params.to),
            scheme: string(&params.scheme),
            host: string(&params.host),
            path: string(&params.path),
            prefix,
            keep_query: params.keep_query,
        }
    }

    fn template_parts(
        &mut self,
        place: &Place<'_>,
        text: &str,
        headers: &BTreeMap<String, String>,
    ) -> Vec<TemplatePart> {
        let form = Form::of(headers);
        let (mut parts, mut sample, mut in_string) = (Vec::new(), String::new(), false);
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{") {
            let Some((expression, after)) = split_placeholder(behind) else {
                self.error(place, "params.template", "`{{` without `}}`".to_owned());
                return parts;
            };
            in_string = ends_in_string(before, in_string);
            let escape = form.escape(in_string);
            parts.push(TemplatePart { text: self.string(before), ..Default::default() });
            let expression = self.expression(place, "params.template", expression.trim());
            parts.push(TemplatePart { expression, escape: escape.into(), ..Default::default() });
            sample.push_str(before);
            sample.push('0');
            rest = after;
        }
        parts.push(TemplatePart { text: self.string(rest), ..Default::default() });
        sample.push_str(rest);
        if parts.len() > MOST_PARTS {
            self.error(place, "params.template", format!("more than {} expressions", MOST_PARTS / 2));
        }
        if let (Form::Json, Err(error)) = (form, serde_json::from_str::<serde_json::Value>(&sample)) {
            self.error(place, "params.template", format!("it would be no JSON, as `content-type` says it is: {error}"));
        }
        parts
    }
}

/// Splits at the `}}` that ends an expression; `}}` in quotes does not. `None` if there is none.
fn split_placeholder(text: &str) -> Option<(&str, &str)> {
    let (mut quote, mut escaped) = (None, false);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '}') if text.get(at..).is_some_and(|rest| rest.starts_with("}}")) => {
                return Some((text.get(..at)?, text.get(at.saturating_add(2)..)?));
            }
            _ => {}
        }
    }
    None
}

/// Whether a JSON text ends inside of a string. `inside` is the state at its start.
fn ends_in_string(text: &str, mut inside: bool) -> bool {
    let mut escaped = false;
    for character in text.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ => {}
        }
    }
    inside
}

/// The format of a body.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Json,
    Html,
}

impl Form {
    fn of(headers: &BTreeMap<String, String>) -> Self {
        let kind = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = kind.map(|(_, value)| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        match kind.as_deref() {
            Some(kind) if kind == "application/json" || kind.ends_with("+json") => Self::Json,
            Some(kind) if kind == "text/html" || kind.ends_with("xml") => Self::Html,
            _ => Self::Plain,
        }
    }

    fn escape(self, in_string: bool) -> TemplateEscape {
        match self {
            Self::Plain => TemplateEscape::None,
            Self::Html => TemplateEscape::Html,
            Self::Json if in_string => TemplateEscape::JsonString,
            Self::Json => TemplateEscape::JsonValue,
        }
    }
}

/// Whether a redirect's target is a path or URL. A path with two leading slashes would be another host.
fn is_target(to: &str) -> bool {
    let graphic = to.chars().all(|c| c.is_ascii_graphic());
    let whole =
        ["http://", "https://"].iter().any(|scheme| to.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    graphic && (whole || (to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\")))
}
