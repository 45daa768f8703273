//! Sources of traffic, as their certificates identify them. The source is known only when a request comes, so these are
//! conditions for the plan.

use std::{collections::BTreeMap, fmt};

use postern_model::TargetRef;
use serde::Serialize;

/// A set of sources that certificates identify. Callers without a certificate are in none. That all traffic is meant is
/// `None` where a source is optional.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    /// The mesh of the sources.
    pub mesh: String,
    /// The service of the sources. `None` means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Tags that the sources have. Other tags do not matter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

impl Source {
    /// The sources that a `targetRef` selects. `mesh` is that of its resource. `None` for all traffic: `Mesh` selects
    /// callers without a certificate, too.
    pub fn of(target: &TargetRef, mesh: &str) -> Option<Self> {
        (*target != TargetRef::Mesh).then(|| Self {
            service: target.service().map(str::to_owned),
            tags: target.tags().cloned().unwrap_or_default(),
            ..Self::identified(mesh)
        })
    }

    /// All sources with a certificate of a mesh.
    pub fn identified(mesh: &str) -> Self {
        Self { mesh: mesh.to_owned(), service: None, tags: BTreeMap::new() }
    }

    /// Whether this set contains all sources of the other one.
    pub fn covers(&self, other: &Self) -> bool {
        self.intersection(other).as_ref() == Some(other)
    }

    /// The sources that are in both sets. `None` if there can be none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let service = match (&self.service, &other.service) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.as_ref().or(b.as_ref()),
        };
        let differ = |(name, value): (&String, &String)| other.tags.get(name).is_some_and(|there| there != value);
        if self.mesh != other.mesh || self.tags.iter().any(differ) {
            return None;
        }
        let tags = self.tags.iter().chain(&other.tags).map(|(name, value)| (name.clone(), value.clone()));
        Some(Self { mesh: self.mesh.clone(), service: service.cloned(), tags: tags.collect() })
    }
}

/// A source in words, or "anyone" for all traffic.
pub fn shown_source(source: Option<&Source>) -> String {
    source.map_or_else(|| "anyone".to_owned(), ToString::to_string)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.service {
            Some(service) => write!(f, "service {service}")?,
            None => write!(f, "mesh {}", self.mesh)?,
        }
        if !self.tags.is_empty() {
            let tags: Vec<_> = self.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            write!(f, " with {}", tags.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(service: Option<&str>, tags: &[(&str, &str)]) -> Source {
        let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Source { mesh: "m".to_owned(), service: service.map(str::to_owned), tags }
    }

    #[test]
    fn intersects() {
        let (mesh, web, api) = (source(None, &[]), source(Some("web"), &[]), source(Some("api"), &[]));
        assert_eq!(mesh.intersection(&web), Some(web.clone()));
        assert_eq!(web.intersection(&mesh), Some(web.clone()));
        assert_eq!(web.intersection(&api), None);
        let (v1, v2) = (source(None, &[("version", "v1")]), source(None, &[("version", "v2")]));
        assert_eq!(v1.intersection(&v2), None);
        assert_eq!(web.intersection(&v1), Some(source(Some("web"), &[("version", "v1")])));
        let zone = source(None, &[("zone", "a")]);
        assert_eq!(v1.intersection(&zone), Some(source(None, &[("version", "v1"), ("zone", "a")])));
        let elsewhere = Source { mesh: "other".to_owned(), ..source(None, &[]) };
        assert_eq!(elsewhere.intersection(&mesh), None);
    }
}
