//! What is in force, and what one node answered on all of its streams.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    hosts,
    wire::{Contents, Kind, Resource},
};

/// A resource: type, name and content.
pub(crate) type Item = (Kind, String, String);

/// What is in force, and a node's answers on all of its streams.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) in_force: BTreeMap<Kind, Contents>,
    pub(crate) accepted: BTreeSet<Item>,
    /// Items of refused responses that were not accepted since.
    pub(crate) doubted: BTreeSet<Item>,
    /// Items that a refusal named and that were never accepted.
    pub(crate) blamed: BTreeSet<Item>,
    /// Items that were certainly refused: named in the refusal, or alone in the response, and never accepted.
    pub(crate) rejected: BTreeSet<Item>,
    /// Items that the node reported to have when it reconnected, refused or not.
    pub(crate) claimed: BTreeSet<Item>,
    pub(crate) versions: BTreeMap<Item, String>,
    pub(crate) sets: BTreeMap<(Kind, String), Contents>,
}

impl Truth {
    /// The resource that a name matches. A virtual host has many names.
    pub(crate) fn stands_for<'a>(&'a self, kind: Kind, name: &'a String) -> Option<&'a String> {
        if kind == Kind::Hosts { hosts::resolve(&self.in_force[&kind], name) } else { Some(name) }
    }

    pub(crate) fn content(&self, kind: Kind, name: &str) -> Option<&String> {
        self.in_force.get(&kind)?.get(name)
    }

    pub(crate) fn accept(&mut self, item: Item) {
        // An Envoy accepts an extension configuration that it refused without applying it (case 33).
        if item.0 != Kind::Extension {
            self.doubted.remove(&item);
        }
        self.blamed.remove(&item);
        self.accepted.insert(item);
    }

    /// Whether the node accepted an item, and did not refuse it since.
    pub(crate) fn is_good(&self, item: Item) -> bool {
        self.accepted.contains(&item) && !self.doubted.contains(&item)
    }

    /// Whether the node refused an item and did not report since, on any stream, that it has it.
    pub(crate) fn stands(&self, item: Item) -> bool {
        self.doubted.contains(&item) && !self.claimed.contains(&item)
    }

    /// Checks that a version always stands for the same content, on every stream.
    pub(crate) fn check_version(&mut self, kind: Kind, resource: &Resource) -> Result<(), String> {
        let item = (kind, resource.name.clone(), resource.content.clone());
        let known = self.versions.entry(item).or_insert_with(|| resource.version.clone());
        if *known == resource.version { Ok(()) } else { Err(format!("{} has two versions", resource.name)) }
    }

    pub(crate) fn version(&self, kind: Kind, name: &str, content: &str) -> String {
        self.versions.get(&(kind, name.to_owned(), content.to_owned())).cloned().unwrap_or_default()
    }
}
