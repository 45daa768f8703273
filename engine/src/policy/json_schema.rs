//! `jsonSchema`: admits a request whose body is valid against a JSON Schema. A refusal says where it is not.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, exhausted};
use crate::{
    event::{Needs, Phase},
    json_schema::{Schemas, Validity, Violation},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    text::json,
    verdict::{Denial, Response},
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "jsonSchema",
    about: "Admits a request whose body is JSON that fits a schema of draft 2020-12, and tells the caller where it does not. \
            Understood are: `type`, `enum`, `const`; `properties`, `required`, `additionalProperties`, `patternProperties`, \
            `propertyNames`, `minProperties`, `maxProperties`, `dependentRequired`, `dependentSchemas`; `items`, `prefixItems`, \
            `contains`, `minContains`, `maxContains`, `minItems`, `maxItems`, `uniqueItems`; `minLength`, `maxLength`, `pattern`; \
            `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf` (exact on decimals); `allOf`, `anyOf`, \
            `oneOf`, `not`, `if`, `then`, `else`; `$defs` and `$ref` to a place in the same schema; and `format`, which is \
            enforced, with `date-time`, `date`, `uuid`, `ipv4`, `ipv6`. `title`, `description`, `default`, `examples`, \
            `deprecated`, `readOnly`, `writeOnly`, `$comment`, and at the root `$schema` and `$id`, are allowed and mean nothing. \
            Anything else is an error when the policy is admitted. A name that is twice in one object is not JSON here, and a \
            body may nest 64 deep.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::required("schema", Kind::JsonSchema, "The schema, in YAML or JSON."),
            Field::optional(
                "contentTypes",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "The media types that are taken for JSON; `*` stands for any characters. A `charset` other than UTF-8 is refused, \
                 and so is a `Content-Type` that could be read as several.",
            )
            .or("[application/json, application/*+json]"),
            Field::optional("allowEmpty", Kind::Boolean, "Whether a request without a body is admitted.").or("false"),
            Field::optional(
                "status",
                Kind::Integer { min: 400, max: 499 },
                "The status of an answer to a body that does not fit.",
            )
            .or("400"),
            Field::optional(
                "maxErrors",
                Kind::Integer { min: 0, max: 100 },
                "How many errors the caller is told at the most; with 0, only that there are some.",
            )
            .or("10"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending {
            status: "`status`",
            reason: "schema_violated",
            when: "the body does not fit; `errors` has a JSON pointer and a message for each error",
        },
        Ending {
            status: "`status`",
            reason: "body_too_complex",
            when: "the body nests too deep, or has more than 500000 values",
        },
        Ending { status: "400", reason: "body_missing", when: "there is no body, and `allowEmpty` is not set" },
        Ending { status: "400", reason: "body_not_json", when: "the body is not JSON" },
        Ending { status: "415", reason: "content_type_unsupported", when: "`Content-Type` is none of `contentTypes`" },
        Ending { status: "415", reason: "content_encoded", when: "the body has a `Content-Encoding`" },
    ],
    example: "\
- policy: jsonSchema
  params:
    schema:
      type: object
      required: [name]
      additionalProperties: false
      properties:
        name: { type: string, minLength: 1, maxLength: 80 }
        age: { type: integer, minimum: 0 }
        friends: { type: array, items: { $ref: '#' } }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct JsonSchema {
    schemas: Schemas,
    content_types: Vec<Arc<str>>,
    allow_empty: bool,
    status: u16,
    most_errors: usize,
}

impl BuiltIn for JsonSchema {
    type Wire = wire::JsonSchema;
    type State = ();

    fn load(wire: &wire::JsonSchema, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        Ok(Self {
            schemas: Schemas::load(&wire.schemas, strings)?,
            content_types: wire.content_types.iter().map(|name| strings.get(*name)).collect::<Result<_, _>>()?,
            allow_empty: wire.allow_empty,
            status: strings.status(wire.status)?,
            most_errors: usize::try_from(wire.most_errors).unwrap_or(0).min(100),
        })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS.union(Needs::BODY)
    }

    fn least_cost(&self) -> u64 {
        if self.allow_empty { 0 } else { self.schemas.least_cost() }
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let body = context.body();
        if body.is_empty() {
            return match self.allow_empty {
                true => Flow::Continue,
                false => deny(400, "body_missing", "a body is required"),
            };
        }
        if !self.is_json(&context.request_header("content-type")) {
            return deny(415, "content_type_unsupported", "the body must be JSON, and `Content-Type` must say so");
        }
        if context.request_header("content-encoding").iter().any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return deny(415, "content_encoded", "the body must not be compressed or otherwise encoded");
        }
        match self.schemas.check(body, self.most_errors, context.budget) {
            Validity::Fits => Flow::Continue,
            Validity::NotJson => deny(400, "body_not_json", "the body is not valid JSON"),
            Validity::Exhausted => Flow::Fail(exhausted()),
            Validity::TooComplex => deny(self.status, "body_too_complex", "the body is too complex to be checked"),
            Validity::Violates(found) => Flow::Deny(self.violated(&found)),
        }
    }
}

impl JsonSchema {
    /// Whether there is exactly one media type, and it is one for JSON.
    fn is_json(&self, headers: &[&[u8]]) -> bool {
        let [header] = headers else { return false };
        let Some(media_type) = media_type(header) else { return false };
        self.content_types.iter().any(|pattern| match pattern.split_once('*') {
            None => media_type == pattern.as_bytes(),
            Some((start, end)) => {
                let rest = media_type.strip_prefix(start.as_bytes());
                rest.and_then(|rest| rest.strip_suffix(end.as_bytes())).is_some()
            }
        })
    }

    fn violated(&self, found: &[Violation]) -> Denial {
        let error = |Violation { pointer, message }: &Violation| {
            format!(r#"{{"pointer":{},"message":{}}}"#, json::quote(pointer), json::quote(message))
        };
        let errors: Vec<_> = found.iter().map(error).collect();
        let errors = if errors.is_empty() { String::new() } else { format!(r#","errors":[{}]"#, errors.join(",")) };
        let response = Response::problem_with(self.status, "the body does not fit its schema", &errors);
        Denial { reason: "schema_violated", response }
    }
}

fn deny(status: u16, reason: &'static str, detail: &str) -> Flow {
    Flow::Deny(Denial { reason, response: Response::problem(status, detail) })
}

/// The media type of a `Content-Type` (RFC 9110, section 8.3.1), in lower case. `None` if it is malformed, or if its
/// `charset` would make an upstream read other text than the one that is checked.
fn media_type(header: &[u8]) -> Option<Vec<u8>> {
    let is_token = |text: &[u8]| {
        let in_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        !text.is_empty() && text.iter().all(in_token)
    };
    let header = header.to_ascii_lowercase();
    let mut parts = header.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let media_type = parts.next()?;
    let mut names = media_type.split(|byte| *byte == b'/');
    let (first, second) = (names.next()?, names.next()?);
    let fits = |part: &[u8]| {
        let Some(equals) = part.iter().position(|byte| *byte == b'=') else { return part.is_empty() };
        let (name, value) = (part.get(..equals).unwrap_or_default(), part.get(equals..).unwrap_or_default());
        let value = value.get(1..).unwrap_or_default();
        let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        let text = quoted.unwrap_or(value);
        let plain = quoted.is_some_and(|text| !text.iter().any(|byte| b"\"\\,".contains(byte)));
        // `charset*` and `charset*0` are RFC 2231's; nobody needs them.
        let charset = !name.starts_with(b"charset") || name == b"charset" && CHARSETS.contains(&text);
        is_token(name) && (plain || is_token(text)) && charset
    };
    (is_token(first) && is_token(second) && names.next().is_none() && parts.all(fits)).then(|| media_type.to_vec())
}

/// The accepted values of `charset`: names of UTF-8, and of its subset ASCII.
const CHARSETS: [&[u8]; 3] = [b"utf-8", b"utf8", b"us-ascii"];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expect: Option<&str>) {
        assert_eq!(media_type(header.as_bytes()).as_deref(), expect.map(str::as_bytes), "for `{header}`");
    }

    #[test]
    fn reads_one_media_type() {
        check("application/json", Some("application/json"));
        check("Application/Vnd.a+JSON ; Charset=UTF-8;", Some("application/vnd.a+json"));
        check("application/json;charset=\"utf-8\";v=1", Some("application/json"));
        check("application/ld+json; profile=\"http://www.w3.org/ns/json-ld#compacted\"", Some("application/ld+json"));
    }

    #[test]
    fn refuses_what_others_may_read_otherwise() {
        for header in [
            "",
            "json",
            "application/",
            "/json",
            "a/b/json",
            "application/x-www-form-urlencoded, a+json",
            "application/json, text/plain",
            "application/json; a=b, text/plain",
            "application/json; a=\"b, text/plain\"",
            "application/json; a",
            "application/json; a=\"b\\\"\"",
            "application/json; charset=utf-7",
            "application/json; charset=utf-8; charset=utf-16",
            "application/json; charset*=utf-16''x",
            "application/json; charset =utf-16",
            "application /json",
            "application/json charset=utf-7",
        ] {
            check(header, None);
        }
    }
}
