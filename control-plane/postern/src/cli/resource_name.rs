//! How commands name a resource.

use std::str::FromStr;

use anyhow::ensure;
use postern_base::uri::escaped;
use serde_json::{Value, json};

/// A reference such as `RoutePolicy/users-api`, or a kind alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) kind: String,
    pub(super) name: Option<String>,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once('/').map_or((text, None), |(kind, name)| (kind, Some(name)));
        if kind.is_empty() || name.is_some_and(str::is_empty) {
            return Err(format!("`{text}` is not a kind, nor a kind and a name such as `RoutePolicy/users-api`"));
        }
        Ok(Self { kind: kind.to_owned(), name: name.map(str::to_owned) })
    }
}

impl Reference {
    /// The path of the resource in the API.
    pub(super) fn path(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("/{}", escaped(name))).unwrap_or_default();
        format!("/api/v1/resources/{}{name}", escaped(&self.kind))
    }

    /// The resource as the API takes it in a body. Fails if the reference is a kind alone.
    pub(super) fn in_mesh(&self, mesh: Option<&str>) -> anyhow::Result<Value> {
        let kind = &self.kind;
        ensure!(self.name.is_some(), "which {kind}? Name one, such as `{kind}/NAME`");
        Ok(json!({ "kind": kind, "name": self.name, "mesh": mesh }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kinds_and_names() {
        let path = |text: &str| text.parse::<Reference>().map(|reference| reference.path());
        assert_eq!(path("RoutePolicy").as_deref(), Ok("/api/v1/resources/RoutePolicy"));
        assert_eq!(path("Service/a b").as_deref(), Ok("/api/v1/resources/Service/a%20b"));
        for wrong in ["", "/a", "Service/"] {
            assert!(path(wrong).is_err_and(|error| error.contains("is not a kind")), "{wrong}");
        }
    }
}
