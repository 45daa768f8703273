//! Candidates of steps that depend on the source: a list in which the first candidate that selects the source runs.
//! Each source gets what merging all parts that select it gives. Only overlaps of sources are enumerated.

use super::source::Source;

/// The largest number of candidates of one step.
pub(super) const MOST: usize = 64;

/// One alternative of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The sources that it is for. `None` means all traffic.
    pub(super) source: Option<Source>,
    /// The indices of the parts that are merged into it, by priority.
    pub(super) parts: Vec<usize>,
}

/// The candidates for parts that are given by priority, with their sources. `None` if there are more than [`MOST`].
pub(super) fn candidates<'s>(parts: impl IntoIterator<Item = (usize, Option<&'s Source>)>) -> Option<Vec<Candidate>> {
    let mut found: Vec<Candidate> = Vec::new();
    for (part, source) in parts {
        let mut next: Vec<Candidate> = Vec::with_capacity(found.len().saturating_add(1));
        for mut candidate in found {
            match intersection(candidate.source.as_ref(), source) {
                None => {}
                Some(both) if both == candidate.source => candidate.parts.push(part),
                Some(both) => {
                    let parts = [candidate.parts.as_slice(), &[part]].concat();
                    add(&mut next, Candidate { source: both, parts });
                }
            }
            add(&mut next, candidate);
        }
        add(&mut next, Candidate { source: source.cloned(), parts: vec![part] });
        if next.len() > MOST {
            return None;
        }
        found = next;
    }
    Some(found)
}

/// Adds a candidate, unless an earlier one covers all of its sources.
fn add(list: &mut Vec<Candidate>, candidate: Candidate) {
    let covers = |earlier: &Candidate| {
        intersection(earlier.source.as_ref(), candidate.source.as_ref()).is_some_and(|both| both == candidate.source)
    };
    if !list.iter().any(covers) {
        list.push(candidate);
    }
}

/// The traffic that both select: `None` for none, `Some(None)` for all.
fn intersection(a: Option<&Source>, b: Option<&Source>) -> Option<Option<Source>> {
    match (a, b) {
        (None, other) | (other, None) => Some(other.cloned()),
        (Some(a), Some(b)) => a.intersection(b).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(service: Option<&str>, version: Option<&str>) -> Source {
        Source {
            mesh: "m".to_owned(),
            service: service.map(str::to_owned),
            tags: version.map(|version| ("version".to_owned(), version.to_owned())).into_iter().collect(),
        }
    }

    fn check(parts: &[Option<Source>], expect: &[(Option<Source>, &[usize])]) {
        let found = candidates(parts.iter().map(Option::as_ref).enumerate()).unwrap();
        let found: Vec<_> = found.iter().map(|found| (found.source.clone(), found.parts.as_slice())).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn for_all_traffic_there_is_one() {
        check(&[None, None, None], &[(None, &[0, 1, 2])]);
    }

    #[test]
    fn a_source_gets_its_own_and_the_rest_the_common() {
        let web = source(Some("web"), None);
        check(&[Some(web.clone()), None], &[(Some(web.clone()), &[0, 1]), (None, &[1])]);
        check(&[None, Some(web.clone())], &[(Some(web), &[0, 1]), (None, &[0])]);
    }

    #[test]
    fn overlaps_get_a_candidate_of_their_own() {
        let (web, v1) = (source(Some("web"), None), source(None, Some("v1")));
        let both = source(Some("web"), Some("v1"));
        check(&[Some(web.clone()), Some(v1.clone())], &[(Some(both), &[0, 1]), (Some(web), &[0]), (Some(v1), &[1])]);
    }

    #[test]
    fn what_is_covered_is_left_out() {
        let web = source(Some("web"), None);
        check(&[Some(web.clone()), Some(web.clone())], &[(Some(web), &[0, 1])]);
    }

    fn any_source() -> impl Strategy<Value = Option<Source>> {
        let service = prop::option::of(prop::sample::select(vec!["a", "b", "c"]));
        let version = prop::option::of(prop::sample::select(vec!["1", "2"]));
        prop::option::of((service, version).prop_map(|(service, version)| source(service, version)))
    }

    proptest! {
        /// The first candidate for a source consists of exactly the parts that select it, in their order.
        #[test]
        fn every_source_gets_all_that_select_it(parts in prop::collection::vec(any_source(), 0..6)) {
            let Some(found) = candidates(parts.iter().map(Option::as_ref).enumerate()) else { return Ok(()) };
            let selects = |selector: Option<&Source>, caller: Option<&Source>| match (selector, caller) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(selector), Some(caller)) => selector.intersection(caller).as_ref() == Some(caller),
            };
            let callers = ["a", "b", "c", "d"].into_iter().flat_map(|service| {
                ["1", "2", "3"].map(|version| Some(source(Some(service), Some(version))))
            });
            for caller in callers.chain([None]) {
                let expect: Vec<_> = parts.iter().enumerate()
                    .filter(|(_, part)| selects(part.as_ref(), caller.as_ref())).map(|(index, _)| index).collect();
                let first = found.iter().find(|found| selects(found.source.as_ref(), caller.as_ref()));
                prop_assert_eq!(first.map(|first| first.parts.clone()).unwrap_or_default(), expect);
            }
        }
    }
}
