//! The cases: how many streams, in which variant of the protocol.

use std::fmt::{self, Display, Formatter};

use clap::ValueEnum;

/// The two ways to be told of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Variant {
    /// State of the world: a change sends the whole type again.
    Sotw,
    /// Incremental: a change sends what changed.
    Delta,
}

impl Variant {
    const ALL: [Self; 2] = [Self::Sotw, Self::Delta];

    const fn name(self) -> &'static str {
        match self {
            Self::Sotw => "sotw",
            Self::Delta => "delta",
        }
    }
}

/// One line of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) variant: Variant,
    pub(super) streams: u32,
}

impl Display for Case {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.variant.name(), self.streams)
    }
}

/// Every number of streams in every variant that is wanted, in the order in which they are measured and shown.
pub(super) fn all(streams: &[u32], variant: Option<Variant>) -> Vec<Case> {
    let variants = Variant::ALL.into_iter().filter(|candidate| variant.is_none_or(|variant| variant == *candidate));
    variants.flat_map(|variant| streams.iter().map(move |streams| Case { variant, streams: *streams })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_both_variants_of_every_number() {
        let names = |variant| all(&[100, 5000], variant).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(None), ["sotw-100", "sotw-5000", "delta-100", "delta-5000"]);
        assert_eq!(names(Some(Variant::Delta)), ["delta-100", "delta-5000"]);
    }
}
