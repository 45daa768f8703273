//! Patterns of hosts: a name, a wildcard such as `*.example.com`, or `*`. They are in lower case.

/// The pattern of every host.
pub const ANY_HOST: &str = "*";

/// Whether `pattern` matches all hosts that `other` matches.
pub fn covers(pattern: &str, other: &str) -> bool {
    pattern == other
        || pattern == ANY_HOST
        || pattern.strip_prefix('*').is_some_and(|suffix| other.len() > suffix.len() && other.ends_with(suffix))
}

/// The pattern that counts among those that match all of `host`: the most specific one, as in Envoy.
pub fn most_specific<'p>(patterns: impl Iterator<Item = &'p str>, host: &str) -> Option<&'p str> {
    // Of two that match the same host, the longer one is more specific, and a name is longer than its wildcards.
    patterns.filter(|pattern| covers(pattern, host)).max_by_key(|pattern| (!pattern.starts_with('*'), pattern.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_which_hosts_a_pattern_covers() {
        let check = |pattern, host, expect| assert_eq!(covers(pattern, host), expect, "{pattern} {host}");
        check("a.example.com", "a.example.com", true);
        check("a.example.com", "b.example.com", false);
        check("*.example.com", "a.example.com", true);
        check("*.example.com", "*.a.example.com", true);
        check("*.example.com", "*.example.com", true);
        check("*.example.com", "example.com", false);
        check("*", "a.example.com", true);
        check("a.example.com", "*", false);
    }

    #[test]
    fn finds_the_most_specific_pattern() {
        let all = ["*.com", "*.example.com", "a.example.com", "*"];
        let check = |host, expect| assert_eq!(most_specific(all.into_iter(), host), Some(expect), "{host}");
        check("a.example.com", "a.example.com");
        check("b.example.com", "*.example.com");
        check("*.a.example.com", "*.example.com");
        check("example.com", "*.com");
        check("example.org", "*");
        assert_eq!(most_specific(["a.test"].into_iter(), "*"), None);
    }
}
