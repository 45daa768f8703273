//! The `Cookie` header (RFC 6265): pairs separated by `;`, each `name=value`, where the value may be in quotes.

/// The values of one cookie in one header, in order.
pub(crate) fn values<'a>(header: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    header.split(|byte| *byte == b';').filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (candidate, value) = pair.split_at_checked(at)?;
        (candidate.trim_ascii() == name.as_bytes()).then(|| unquote(value.get(1..).unwrap_or_default().trim_ascii()))
    })
}

/// The header without one cookie. `None` if there is no other cookie.
pub(crate) fn without(header: &[u8], name: &str) -> Option<Vec<u8>> {
    let is_other = |pair: &&[u8]| values(pair, name).next().is_none() && !pair.trim_ascii().is_empty();
    let others: Vec<_> = header.split(|byte| *byte == b';').filter(is_other).map(<[u8]>::trim_ascii).collect();
    (!others.is_empty()).then(|| others.join(&b"; "[..]))
}

fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expect: &[&str]) {
        let found: Vec<_> = values(header.as_bytes(), "key").map(|value| str::from_utf8(value).unwrap()).collect();
        assert_eq!(found, expect, "{header}");
    }

    #[test]
    fn finds_every_value_of_a_cookie() {
        check("key=a; other=b;key=c", &["a", "c"]);
        check("keys=a; Key=b; key", &[]);
        check("", &[]);
    }

    #[test]
    fn leaves_one_cookie_out() {
        let check = |header: &str, expect: Option<&str>| {
            assert_eq!(without(header.as_bytes(), "key"), expect.map(|text| text.as_bytes().to_vec()), "{header}");
        };
        check("a=b", Some("a=b"));
        check("a=b; key=c;d ;keys=e; key = \"f\"", Some("a=b; d; keys=e"));
        check("key=a", None);
        check("key=a; ", None);
    }

    #[test]
    fn trims_and_unquotes() {
        check(r#" key = "a b" "#, &["a b"]);
        check(r#"key="""#, &[""]);
        check("key=\"", &["\""]);
        check("key=a=b", &["a=b"]);
    }
}
