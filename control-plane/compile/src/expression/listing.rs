//! All that an expression can name, with an example of each, for documentation. Names and signatures are those that the
//! checker uses.

use postern_engine::cel::{self, Attribute, Type};
use postern_proto::plan::v1::expression::Function;

use super::{functions, functions::Style, types};

/// An attribute.
#[derive(Debug)]
pub struct ListedAttribute {
    /// The attribute itself, with its name, type and description.
    pub attribute: Attribute,
    /// A condition that reads it.
    pub example: &'static str,
}

/// A function, or a macro.
#[derive(Debug)]
pub struct ListedFunction {
    /// The name.
    pub name: &'static str,
    /// How it is called, with the types of arguments and result.
    pub signatures: Vec<String>,
    /// What it returns.
    pub about: &'static str,
    /// A condition that is true.
    pub example: &'static str,
}

/// An operator.
#[derive(Debug)]
pub struct ListedOperator {
    /// The sign.
    pub name: &'static str,
    /// The types of operands and result.
    pub signatures: Vec<String>,
}

/// All attributes, in the order of their numbers.
pub fn attributes() -> impl Iterator<Item = ListedAttribute> {
    Attribute::ALL.iter().map(|attribute| ListedAttribute { attribute: *attribute, example: example(*attribute) })
}

/// All functions, in the order of the checker's table.
pub fn functions() -> impl Iterator<Item = ListedFunction> {
    functions::FUNCTIONS.iter().map(|(function, style)| {
        let (about, example) = described(*function);
        ListedFunction { name: cel::name(*function), signatures: calls(*function, *style), about, example }
    })
}

/// All operators with fixed types. `==`, `!=`, `in`, `[ ]` and `? :` take several.
pub fn operators() -> impl Iterator<Item = ListedOperator> {
    let typed = functions::OPERATORS.iter().filter(|(_, function)| !types::signatures(*function).is_empty());
    typed.map(|(_, function)| {
        let signature = |(arguments, result): &types::Signature| match arguments {
            [one] => format!("`{}{}` → {}", cel::name(*function), one.name(), result.name()),
            [one, other] => format!("`{} {} {}` → {}", one.name(), cel::name(*function), other.name(), result.name()),
            _ => String::new(),
        };
        let signatures = types::signatures(*function).iter().map(signature).collect();
        ListedOperator { name: cel::name(*function), signatures }
    })
}

/// The macros, which are no functions: their last argument is evaluated for each element.
pub const MACROS: &[ListedMacro] = &[
    ListedMacro {
        form: "has(a.b)",
        about: "Whether a map has an entry: a header, a claim. The one way to ask for what may be absent.",
        example: "has({'a': 1}.a) && !has({'a': 1}.b)",
    },
    ListedMacro {
        form: "list.all(x, condition)",
        about: "Whether the condition is true for every element, or every key of a map.",
        example: "[1, 2].all(x, x > 0)",
    },
    ListedMacro {
        form: "list.exists(x, condition)",
        about: "Whether the condition is true for one element at least.",
        example: "['a', 'b'].exists(x, x == 'b')",
    },
    ListedMacro {
        form: "list.exists_one(x, condition)",
        about: "Whether the condition is true for exactly one element. Also `existsOne`.",
        example: "[1, 2, 3].exists_one(x, x > 2)",
    },
    ListedMacro {
        form: "list.map(x, expression)",
        about: "The list of results. With three arguments, `list.map(x, condition, expression)`, of those elements alone for \
                which the condition is true.",
        example: "[1, 2].map(x, x * 2) == [2, 4]",
    },
    ListedMacro {
        form: "list.filter(x, condition)",
        about: "The elements for which the condition is true.",
        example: "[1, 2, 3].filter(x, x > 1) == [2, 3]",
    },
    ListedMacro {
        form: "dyn(x)",
        about: "The value itself, with its type unknown until it is evaluated.",
        example: "dyn(1) == 1",
    },
];

/// A macro.
#[derive(Debug)]
pub struct ListedMacro {
    /// How it is called.
    pub form: &'static str,
    /// What it returns.
    pub about: &'static str,
    /// A condition that is true.
    pub example: &'static str,
}

fn calls(function: Function, style: Style) -> Vec<String> {
    let name = cel::name(function);
    let names = |types: &[Type]| types.iter().map(|of| of.name()).collect::<Vec<_>>().join(", ");
    let mut calls = Vec::new();
    for (arguments, result) in types::signatures(function) {
        let result = result.name();
        if let (Style::Receiver | Style::Both, [receiver, rest @ ..]) = (style, *arguments) {
            calls.push(format!("`{}.{name}({})` → {result}", receiver.name(), names(rest)));
        }
        if style != Style::Receiver {
            calls.push(format!("`{name}({})` → {result}", names(arguments)));
        }
    }
    calls
}

fn example(attribute: Attribute) -> &'static str {
    use Attribute as A;
    match attribute {
        A::RequestMethod => "request.method in ['GET', 'HEAD']",
        A::RequestPath => "request.path == '/search?q=1'",
        A::RequestUrlPath => "request.url_path.startsWith('/admin/')",
        A::RequestQuery => "request.query.contains('debug=')",
        A::RequestHost => "request.host == 'api.example.com'",
        A::RequestScheme => "request.scheme == 'https'",
        A::RequestHeaders => "has(request.headers.accept) && request.headers['accept'].contains('json')",
        A::RequestSize => "request.size < 65536",
        A::RequestTime => "request.time.getHours() >= 8",
        A::RequestId => "request.id != ''",
        A::RequestProtocol => "request.protocol == 'HTTP/2'",
        A::RequestBody => "size(request.body) > 0",
        A::SourceAddress => "source.address.startsWith('10.1.')",
        A::SourcePort => "source.port >= 1024",
        A::SourceService => "source.service == 'web'",
        A::SourceTags => "source.tags['kuma.io/zone'] == 'east'",
        A::SourcePrincipal => "source.principal == 'spiffe://mesh/web'",
        A::DestinationAddress => "destination.address != '127.0.0.1'",
        A::DestinationPort => "destination.port == 8443",
        A::ConnectionMtls => "connection.mtls",
        A::ConnectionRequestedServerName => "connection.requested_server_name == request.host",
        A::ConnectionTlsVersion => "connection.tls_version == 'TLSv1.3'",
        A::ConnectionUriSanPeerCertificate => "connection.uri_san_peer_certificate.startsWith('spiffe://mesh/')",
        A::XdsRouteName => "xds.route_name == 'users'",
        A::XdsClusterName => "xds.cluster_name != 'legacy'",
        A::XdsVirtualHostName => "xds.virtual_host_name == 'api'",
        A::ResponseCode => "response.code >= 500",
        A::ResponseHeaders => "'set-cookie' in response.headers",
        A::ResponseSize => "response.size > 1000000",
        A::ResponseBody => "size(response.body) == 0",
        A::ConsumerName => "consumer.name == 'ci'",
        A::ConsumerGroups => "'admins' in consumer.groups",
        A::JwtClaims => "has(jwt.claims.email_verified) && jwt.claims.email_verified == true",
        A::Metadata => "has(metadata.risk)",
    }
}

/// What a function returns, and a condition with it that is true.
fn described(function: Function) -> (&'static str, &'static str) {
    use Function as F;
    match function {
        F::Size => {
            ("The length: code points of a string, bytes, elements of a list, entries of a map.", "size('abc') == 3")
        }
        F::Matches => (
            "Whether the regular expression matches somewhere in the string, in time linear in its length. A pattern that is \
             no literal is compiled for each evaluation.",
            "'/v2/users'.matches('^/v[0-9]+/')",
        ),
        F::StartsWith => ("Whether the string starts with the other.", "'/admin/x'.startsWith('/admin/')"),
        F::EndsWith => ("Whether the string ends with the other.", "'a.png'.endsWith('.png')"),
        F::Contains => ("Whether the string contains the other.", "'a=1&b=2'.contains('b=')"),
        F::LowerAscii => ("The string with ASCII letters in lower case.", "'GeT'.lowerAscii() == 'get'"),
        F::UpperAscii => ("The string with ASCII letters in upper case.", "'GeT'.upperAscii() == 'GET'"),
        F::Trim => ("The string without white space at both ends.", "' a '.trim() == 'a'"),
        F::Split => (
            "The parts between separators; with a number, at most so many parts.",
            "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        ),
        F::Replace => (
            "The string with each occurrence replaced; with a number, at most so many.",
            "'a-b-c'.replace('-', '') == 'abc' && 'a-b-c'.replace('-', '', 1) == 'ab-c'",
        ),
        F::Substring => (
            "The code points from one index, up to another or the end.",
            "'postern'.substring(4) == 'ern' && 'postern'.substring(0, 4) == 'post'",
        ),
        F::IndexOf => (
            "The index of the first occurrence, searched from the start or an index; -1 without one.",
            "'banana'.indexOf('a') == 1 && 'banana'.indexOf('a', 2) == 3 && 'b'.indexOf('a') == -1",
        ),
        F::CharAt => ("The code point at an index as a string; empty at the end.", "'abc'.charAt(1) == 'b'"),
        F::Bool => ("Converts `'true'`, `'false'` and their usual spellings.", "bool('true')"),
        F::Int => ("Converts; fails for what is no number or does not fit. Seconds of a timestamp.", "int('42') == 42"),
        F::Uint => ("Converts; fails for what is negative or no number.", "uint('42') == 42u"),
        F::Double => ("Converts; fails for what is no number.", "double('1.5') == 1.5"),
        F::String => ("Converts to text.", "string(42) == '42'"),
        F::Bytes => ("The bytes of a string in UTF-8.", "bytes('a') == b'a'"),
        F::Timestamp => (
            "Converts text of RFC 3339, or seconds since 1970.",
            "timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-02T00:00:00Z')",
        ),
        F::Duration => ("Converts text such as `90s` or `1h30m`.", "duration('90s') < duration('2m')"),
        F::GetFullYear => ("The year, in UTC.", "timestamp('2026-03-04T05:06:07Z').getFullYear() == 2026"),
        F::GetMonth => ("The month, from 0.", "timestamp('2026-03-04T05:06:07Z').getMonth() == 2"),
        F::GetDate => ("The day of the month, from 1.", "timestamp('2026-03-04T05:06:07Z').getDate() == 4"),
        F::GetDayOfMonth => ("The day of the month, from 0.", "timestamp('2026-03-04T05:06:07Z').getDayOfMonth() == 3"),
        F::GetDayOfWeek => {
            ("The day of the week, from Sunday, 0.", "timestamp('2026-03-04T05:06:07Z').getDayOfWeek() == 3")
        }
        F::GetDayOfYear => ("The day of the year, from 0.", "timestamp('2026-03-04T05:06:07Z').getDayOfYear() == 62"),
        F::GetHours => ("The hour of a timestamp, or a duration in whole hours.", "duration('90m').getHours() == 1"),
        F::GetMinutes => {
            ("The minute of a timestamp, or a duration in whole minutes.", "duration('90s').getMinutes() == 1")
        }
        F::GetSeconds => {
            ("The second of a timestamp, or a duration in whole seconds.", "duration('90s').getSeconds() == 90")
        }
        F::GetMilliseconds => (
            "The milliseconds of a timestamp's second, or of a duration's.",
            "timestamp('2026-03-04T05:06:07.089Z').getMilliseconds() == 89",
        ),
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Environment, compile_condition},
        *,
    };

    #[track_caller]
    fn is_true(example: &str) {
        let compiled =
            compile_condition(example, Environment::Request).unwrap_or_else(|error| panic!("{example}: {error:?}"));
        assert_eq!(compiled.always(), Some(true), "{example}");
    }

    #[test]
    fn every_function_has_an_example_that_is_true() {
        for ListedFunction { name, signatures, about, example } in functions() {
            assert!(!about.is_empty() && !signatures.is_empty() && example.contains(name), "{name}");
            is_true(example);
        }
        MACROS.iter().for_each(|one| is_true(one.example));
    }

    #[test]
    fn every_attribute_has_an_example_that_reads_it() {
        for ListedAttribute { attribute, example } in attributes() {
            let compiled = compile_condition(example, Environment::Response);
            let compiled = compiled.unwrap_or_else(|error| panic!("{example}: {error:?}"));
            assert!(compiled.reads(attribute) && !attribute.about().is_empty(), "{example}");
        }
    }
}
