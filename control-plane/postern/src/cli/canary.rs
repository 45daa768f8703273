//! Parses the steps and the tolerance of a rollout on the command line.

use std::{str::FromStr, time::Duration};

use postern_model::unit;
use postern_release::{
    releases::Removable,
    rollout::{Step, Tolerance},
};

/// A step such as `25%:30s` or `stage=canary:1m`. Without a time, the next step follows at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CanaryStep(pub(super) Step);

impl FromStr for CanaryStep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Parses a duration such as `30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    unit::duration(text).ok_or_else(|| format!("`{text}` is not a duration such as `30s` or `5m`"))
}

/// Parses a tolerance such as `2` or `5%`.
pub(super) fn tolerance(text: &str) -> Result<Tolerance, String> {
    let wrong = || format!("`{text}` is neither a number such as `2` nor a share below 100 such as `5%`");
    match text.strip_suffix('%') {
        None => text.parse().map(Tolerance::Nodes).map_err(|_| wrong()),
        Some(share) => match share.parse() {
            Ok(share @ 0..=99) => Ok(Tolerance::Share(share)),
            _ => Err(wrong()),
        },
    }
}

/// Parses how many resources a change may remove, such as `10` or `25%`.
pub(super) fn removable(text: &str) -> Result<Removable, String> {
    let wrong = || format!("`{text}` is neither a number such as `10` nor a percentage such as `25%`");
    let parsed = match text.strip_suffix('%') {
        None => text.parse().map(Tolerance::Nodes).map_err(|_| wrong()),
        Some(share) => match share.parse() {
            Ok(share @ 0..=100) => Ok(Tolerance::Share(share)),
            _ => Err(wrong()),
        },
    };
    parsed.map(Removable)
}

#[cfg(test)]
mod tests {
    use postern_release::rollout::Pick;

    use super::*;

    fn check(text: &str, expect: Result<(Pick, u64), &str>) {
        let found = text.parse::<CanaryStep>();
        let expect = expect.map(|(nodes, seconds)| CanaryStep(Step { nodes, pause: Duration::from_secs(seconds) }));
        assert_eq!(found, expect.map_err(str::to_owned), "for `{text}`");
    }

    #[test]
    fn reads_shares_and_tags() {
        let tags = |tag: &str, value: &str| Pick::Tags([(tag.to_owned(), value.to_owned())].into());
        check("25%:30s", Ok((Pick::Share(25), 30)));
        check("100%", Ok((Pick::Share(100), 0)));
        check("stage=canary:1m", Ok((tags("stage", "canary"), 60)));
        check("stage=", Ok((tags("stage", ""), 0)));
    }

    #[test]
    fn reads_how_many_may_refuse() {
        assert_eq!(tolerance("2"), Ok(Tolerance::Nodes(2)));
        assert_eq!(tolerance("5%"), Ok(Tolerance::Share(5)));
        for wrong in ["", "-1", "100%", "%", "2.5", "two"] {
            assert!(
                tolerance(wrong).is_err_and(|message| message.contains(&format!("`{wrong}` is neither"))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn says_what_is_wrong() {
        check("0%", Err("`0` is not a share from 1 to 100"));
        check("101%:1s", Err("`101` is not a share from 1 to 100"));
        check("25:1s", Err("`25` is neither a share such as `25%` nor a tag such as `stage=canary`"));
        check("=x", Err("`=x` is neither a share such as `25%` nor a tag such as `stage=canary`"));
        check("25%:soon", Err("`soon` is not a duration such as `30s` or `5m`"));
    }
}
