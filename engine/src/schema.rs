//! The language in which a user's input is described: the parameters of policies and, in the control plane, whole
//! resources. It does not check anything: the control plane checks against it and generates documentation from it.

use crate::{event::Phase, header::HeaderUse, load_error::LoadError};

/// A mapping with named fields; any other field is an error.
#[derive(Debug)]
pub struct Object {
    /// The fields, in the order in which documentation shows them.
    pub fields: &'static [Field],
    /// The fields of which exactly one must be present; empty if there is no such rule.
    pub exactly_one_of: &'static [&'static str],
}

impl Object {
    /// The range of a whole number's field. For constants: a field that is absent or of another kind is then a compile
    /// error.
    #[expect(clippy::panic, reason = "it is evaluated by the compiler")]
    pub(crate) const fn range(&self, name: &str) -> Range {
        let mut fields = self.fields;
        while let [field, rest @ ..] = fields {
            fields = rest;
            if let (true, Kind::Integer { min, max }) = (equal(field.name.as_bytes(), name.as_bytes()), &field.kind) {
                return Range { least: min.unsigned_abs(), most: max.unsigned_abs() };
            }
        }
        panic!("no whole number has this name")
    }
}

/// The range of a whole number that is never negative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    least: u64,
    most: u64,
}

impl Range {
    /// Returns a number of a plan if it is in the range, and an error if not.
    pub(crate) fn check(self, what: &'static str, value: u32) -> Result<u32, LoadError> {
        let (Self { least, most }, wide) = (self, value.into());
        if (least..=most).contains(&wide) {
            Ok(value)
        } else {
            Err(LoadError::Range { what, least, most, value: wide })
        }
    }
}

const fn equal(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([first, rest @ ..], [other, others @ ..]) = (a, b) {
        if *first != *other {
            return false;
        }
        (a, b) = (rest, others);
    }
    a.is_empty() && b.is_empty()
}

/// One field of an [`Object`].
#[derive(Debug)]
pub struct Field {
    /// The key, as the user writes it.
    pub name: &'static str,
    /// What the value must be.
    pub kind: Kind,
    /// Whether the field must be present.
    pub required: bool,
    /// The default, as a user would write it. This is its only definition: absent fields are filled in from here.
    pub default: Option<&'static str>,
    /// When the default applies.
    pub applies: Applies,
    /// Whether merging takes the field from a less specific resource. Fields that could open a route that way are not
    /// inherited.
    pub inherited: bool,
    /// One sentence for documentation.
    pub about: &'static str,
}

impl Field {
    /// A field that must be present.
    pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, required: true, default: None, applies: Applies::Always, inherited: true, about }
    }

    /// A field that may be absent.
    pub const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, required: false, default: None, applies: Applies::Always, inherited: true, about }
    }

    /// Sets the default.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Makes the value of another field of the same object the default.
    #[must_use]
    pub const fn or_same_as(self, other: &'static str) -> Self {
        Self { default: Some(other), applies: Applies::SameAs, ..self }
    }

    /// Restricts the default: it does not apply if one of these fields is present.
    #[must_use]
    pub const fn unless(self, others: &'static [&'static str]) -> Self {
        Self { applies: Applies::Unless(others), ..self }
    }

    /// Restricts the default: it applies only if this other field is present.
    #[must_use]
    pub const fn with(self, other: &'static str) -> Self {
        Self { applies: Applies::With(other), ..self }
    }

    /// Excludes the field from merging: it is not taken from a less specific resource unless the more specific one asks
    /// for it.
    #[must_use]
    pub const fn not_inherited(self) -> Self {
        Self { inherited: false, ..self }
    }
}

/// When the default of an absent field applies.
#[derive(Debug, Clone, Copy)]
pub enum Applies {
    /// Always.
    Always,
    /// Unless one of these fields of the same object is present.
    Unless(&'static [&'static str]),
    /// If this field of the same object is present.
    With(&'static str),
    /// Always. The default is the name of a field of the same object, and means its value.
    SameAs,
}

/// What a value must be.
#[derive(Debug)]
pub enum Kind {
    /// Any string.
    Text,
    /// The name of a resource, listener or step: 1 to 253 of `a-z A-Z 0-9 . _ -`, a letter or digit first.
    Name,
    /// The name of a route, which may look like a path: 1 to 253 of `a-z A-Z 0-9 . _ - / : * { } ~`, a letter, digit or
    /// `/` first, and no start that the control plane keeps for itself.
    RouteName,
    /// A header's name: an RFC 9110 token of any case, not `host`, not a pseudo-header.
    HeaderName,
    /// The name of a header that a step edits: none that frames a message or a connection, or that Envoy obeys.
    EditedHeader(HeaderUse),
    /// A header's value: no control characters but the tab.
    HeaderValue,
    /// An HTTP method: a token in upper case.
    Method,
    /// A path that starts with `/`.
    Path,
    /// A whole path in which `{name}` stands for one segment and, as the last one, `{name=**}` for all the rest.
    PathTemplate,
    /// A regular expression that every part of a system understands alike: no look-around, no references back.
    Regex,
    /// A host name, `*` or a `*.` wildcard, without a port.
    Host,
    /// A host name, without a port, in which `{service}`, `{mesh}` and `{tags.NAME}` are replaced.
    HostTemplate,
    /// A port, or text with the placeholders of a `HostTemplate` that becomes one.
    PortTemplate,
    /// An IP address or a DNS name, without a port.
    Address,
    /// An IP address.
    IpAddress,
    /// An IP address, or a network such as `10.0.0.0/8`.
    Cidr,
    /// A SHA-256 digest in 64 hexadecimal digits.
    Sha256,
    /// A whole number.
    Integer {
        /// The least value allowed.
        min: i64,
        /// The greatest value allowed.
        max: i64,
    },
    /// A number from 0 to 100, of at most four decimals.
    Percent,
    /// `true` or `false`.
    Boolean,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A mapping with named fields.
    Object(&'static Object),
    /// A sequence.
    List {
        /// What each item must be.
        item: &'static Kind,
        /// The fewest items allowed.
        at_least: usize,
    },
    /// A mapping from keys that the user chooses.
    Map {
        /// What each key must be.
        key: &'static Kind,
        /// What each value must be.
        value: &'static Kind,
    },
    /// A whole number of bytes, such as `65536`, `64KiB` or `1MiB`.
    Size,
    /// A length of time, such as `250ms`, `1s`, `5m` or `1h`; never zero.
    Duration,
    /// A length of time such as `5m`, or `0s` for no limit.
    Timeout,
    /// A CEL expression over what is known of a request, and of its response in a response chain.
    Expression,
    /// A JSON Schema: a mapping, or `true` or `false`. What it may say is checked when the policy is lowered.
    JsonSchema,
    /// A JSON Web Key set (RFC 7517): a mapping, or its JSON in a string.
    JwkSet,
    /// A resource of Envoy in protobuf JSON: a mapping with its type in `@type`. What it may say is Envoy's matter.
    EnvoyMessage,
    /// Certificates or a key in PEM: the text itself, or `file:` with the name of a file beside the resource's.
    Pem,
    /// A step's parameters: checked against the schema of the policy that its `policy` field names.
    Params,
}

/// The name, parameters and documentation of a policy.
#[derive(Debug)]
pub struct PolicySchema {
    /// What a step's `policy` field says.
    pub name: &'static str,
    /// One sentence for documentation.
    pub about: &'static str,
    /// The chains that it may stand in.
    pub phases: &'static [Phase],
    /// What a step's `params` may hold.
    pub params: Object,
    /// The ways in which it may fail or answer a caller, for documentation.
    pub endings: &'static [Ending],
    /// One or more steps of a chain of its first phase, as a user would write them; a test runs them.
    pub example: &'static str,
}

/// One way in which a step ends a request.
#[derive(Debug)]
pub struct Ending {
    /// The status that the caller gets.
    pub status: &'static str,
    /// The reason in decisions and logs.
    pub reason: &'static str,
    /// When this happens.
    pub when: &'static str,
}
