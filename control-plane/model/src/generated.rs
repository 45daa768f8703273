//! Gateways that are made of other resources, for some nodes each. They live as long as their bundle, so that whoever
//! looks at a node's Gateways need not tell them apart.

use std::{fmt, sync::OnceLock};

use super::{gateway::Gateway, resource::Resource};

/// The generated gateways of a bundle. Grows only, and has equal ones once. A clone is empty.
#[derive(Default)]
pub(super) struct Generated {
    first: Link,
}

type Link = OnceLock<Box<Entry>>;

struct Entry {
    gateway: Resource<Gateway>,
    next: Link,
}

impl Generated {
    /// The same gateway, for as long as `self` lives.
    pub(super) fn keep(&self, gateway: &Resource<Gateway>) -> &Resource<Gateway> {
        let mut link = &self.first;
        loop {
            let entry = link.get_or_init(|| Box::new(Entry { gateway: gateway.clone(), next: OnceLock::new() }));
            if entry.gateway.is_same(gateway) {
                return &entry.gateway;
            }
            link = &entry.next;
        }
    }
}

impl Drop for Generated {
    /// Drops entry by entry: a long list would overflow the stack otherwise.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut entry) = next {
            next = entry.next.take();
        }
    }
}

impl Clone for Generated {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Generated {
    /// Omits the content, which depends on who asked for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Generated")
    }
}
