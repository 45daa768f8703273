//! Which requests are answered from what is kept: an Envoy that has something else keeps that, since it can only have
//! come later. So a running Envoy is sent nothing that takes anything from it.

use std::collections::{BTreeMap, BTreeSet};

use postern_compile::snapshot::{ResourceSet, ResourceType};

use super::kept::Sets;
use crate::xds::session::{Request, Wish};

/// Decides which requests of a stream reach a session with what is kept.
#[derive(Debug)]
pub(super) struct Deference {
    types: BTreeMap<ResourceType, Stance>,
}

/// How requests of a type are handled, after the first.
#[derive(Debug)]
enum Stance {
    /// The Envoy has nothing, or what is kept.
    Answered,
    /// The Envoy has something else and keeps it. Names beyond these are answered, and whether that has begun.
    Beyond { names: BTreeSet<String>, begun: bool },
    /// The Envoy has something else of a type whose responses replace everything.
    Silent,
}

impl Deference {
    /// For a new stream.
    pub(super) fn new() -> Self {
        Self { types: BTreeMap::new() }
    }

    /// The request as the session is to see it. `None` if it gets no answer.
    pub(super) fn admit(&mut self, mut request: Request, sets: &Sets) -> Option<Request> {
        let kind = request.kind;
        let has_hosts = kind == ResourceType::VirtualHost && sets.contains_key(&ResourceType::RouteConfiguration);
        let nothing = ResourceSet::from_iter([]);
        // Of a type that the node never accepted anything of, nothing is known, not even that it has no resources.
        let set = sets.get(&kind).or_else(|| has_hosts.then_some(&nothing))?;
        let stance = self.types.entry(kind).or_insert_with(|| Stance::of(&request, set));
        match stance {
            Stance::Answered => {}
            Stance::Silent => return None,
            Stance::Beyond { names: others, begun } => match &mut request.wish {
                Wish::All { names, version } => {
                    names.retain(|name| !others.contains(name));
                    version.clear();
                    if names.is_empty() && !*begun {
                        return None;
                    }
                    *begun = true;
                }
                Wish::Changes { subscribe, initial, .. } if !*begun => {
                    subscribe.retain(|name| !others.contains(name));
                    initial.retain(|name, _| !others.contains(name));
                    *begun = true;
                }
                Wish::Changes { .. } => {}
            },
        }
        Some(request)
    }
}

impl Stance {
    fn of(request: &Request, set: &ResourceSet) -> Self {
        let is_full = request.kind.is_full_state();
        match &request.wish {
            Wish::All { version, .. } if version.is_empty() || version == set.version.as_str() => Self::Answered,
            Wish::All { .. } if is_full => Self::Silent,
            Wish::All { names, .. } => Self::Beyond { names: names.iter().cloned().collect(), begun: false },
            Wish::Changes { initial, .. } => {
                let is_kept = |(name, version): (&String, &String)| {
                    set.get(name).is_some_and(|kept| kept.version.as_str() == version)
                };
                let differs = initial.iter().any(|claim| !is_kept(claim));
                let lacks = is_full && !initial.is_empty() && initial.len() != set.resources.len();
                if is_full && (differs || lacks) {
                    return Self::Silent;
                }
                let others = initial.iter().filter(|claim| !is_kept(*claim)).map(|(name, _)| name.clone());
                if differs { Self::Beyond { names: others.collect(), begun: false } } else { Self::Answered }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::kept::resource, *};
    use envoy_types::pb::google::protobuf::Any;

    fn sets(kind: ResourceType, names: &[&str]) -> Sets {
        let make = |name: &&str| resource((*name).to_owned(), "", Any { type_url: String::new(), value: vec![1] });
        [(kind, names.iter().map(make).collect())].into()
    }

    fn all(kind: ResourceType, version: &str, names: &[&str]) -> Request {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Request { kind, nonce: String::new(), error: None, wish: Wish::All { names, version: version.to_owned() } }
    }

    fn changes(kind: ResourceType, subscribe: &[&str], initial: &[(&str, &str)]) -> Request {
        let owned = |name: &&str| (*name).to_owned();
        let initial = initial.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        let wish = Wish::Changes { subscribe: subscribe.iter().map(owned).collect(), unsubscribe: Vec::new(), initial };
        Request { kind, nonce: String::new(), error: None, wish }
    }

    #[test]
    fn answers_a_client_that_has_nothing_or_what_is_kept() {
        let kind = ResourceType::Cluster;
        let kept = sets(kind, &["a"]);
        let version = kept[&kind].version.as_str();
        let of_a = kept[&kind].resources[0].version.as_str();
        for request in
            [all(kind, "", &[]), all(kind, version, &[]), changes(kind, &[], &[]), changes(kind, &[], &[("a", of_a)])]
        {
            let mut deference = Deference::new();
            let admitted = deference.admit(request.clone(), &kept);
            assert_eq!(format!("{admitted:?}"), format!("{:?}", Some(request)));
        }
    }

    #[test]
    fn leaves_a_client_alone_that_has_another_whole() {
        let kind = ResourceType::Listener;
        let kept = sets(kind, &["a", "b"]);
        let of_a = kept[&kind].resources[0].version.as_str();
        for request in [
            all(kind, "other", &[]),
            changes(kind, &[], &[("a", of_a)]),
            changes(kind, &[], &[("a", "other"), ("b", of_a)]),
        ] {
            let mut deference = Deference::new();
            assert!(deference.admit(request, &kept).is_none());
            assert!(deference.admit(all(kind, "", &[]), &kept).is_none(), "for the rest of the stream");
        }
    }

    #[test]
    fn answers_only_names_that_a_client_lacks() {
        let kind = ResourceType::Endpoints;
        let kept = sets(kind, &["a", "b"]);
        let names = |request: Option<Request>| match request.unwrap().wish {
            Wish::All { names, version } => (names, version),
            Wish::Changes { subscribe, initial, .. } => (subscribe, format!("{initial:?}")),
        };
        let mut deference = Deference::new();
        assert!(deference.admit(all(kind, "other", &["a"]), &kept).is_none());
        assert_eq!(
            names(deference.admit(all(kind, "other", &["a", "b"]), &kept)),
            (vec!["b".to_owned()], String::new())
        );
        assert_eq!(names(deference.admit(all(kind, "other", &["a", "b"]), &kept)).0, ["b"], "its ACK");
        let mut deference = Deference::new();
        let first = deference.admit(changes(kind, &["a", "c", "b"], &[("a", "other"), ("c", "x")]), &kept);
        assert_eq!(names(first), (vec!["b".to_owned()], "{}".to_owned()));
    }

    #[test]
    fn says_nothing_of_a_type_of_which_nothing_was_accepted() {
        let mut deference = Deference::new();
        assert!(deference.admit(all(ResourceType::Listener, "", &[]), &sets(ResourceType::Cluster, &["a"])).is_none());
        let routes = sets(ResourceType::RouteConfiguration, &["r"]);
        assert!(deference.admit(changes(ResourceType::VirtualHost, &[], &[]), &routes).is_some());
    }
}
