//! Selects sources by the peer's certificate: its first URI SAN is `spiffe://<mesh>/<service>`, and tags are further
//! ones, `postern://tag/<name>/<value>`, both percent-encoded.

use std::{borrow::Cow, sync::Arc};

use postern_proto::plan::v1 as wire;

use crate::{
    event::{Inputs, Needs, Property},
    load_error::LoadError,
    strings::Strings,
    text::query::decode_part,
};

const TAG: &str = "postern://tag/";

/// A condition on sources.
#[derive(Debug)]
pub(crate) struct Selector {
    mesh: Arc<str>,
    service: Option<Arc<str>>,
    tags: Vec<(Arc<str>, Arc<str>)>,
}

impl Selector {
    pub(crate) fn load(wire: &wire::Source, strings: &Strings) -> Result<Self, LoadError> {
        let tag = |tag: &wire::source::Tag| Ok((strings.get(tag.name)?, strings.get(tag.value)?));
        Ok(Self {
            mesh: strings.get(wire.mesh)?,
            service: wire.service.map(|service| strings.get(service)).transpose()?,
            tags: wire.tags.iter().map(tag).collect::<Result<_, LoadError>>()?,
        })
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs::of(Property::PeerUriSan).union(Needs::of(Property::PeerUriSans).when(!self.tags.is_empty()))
    }

    /// Whether it selects the source of a message. A certificate without such an identity is never selected.
    pub(crate) fn selects(&self, inputs: &Inputs) -> bool {
        let identity = text(inputs, Property::PeerUriSan).and_then(spiffe);
        let fits = |(mesh, service): (&str, &str)| {
            *mesh == *self.mesh && self.service.as_ref().is_none_or(|wanted| **wanted == *service)
        };
        identity.is_some_and(fits) && self.tags.iter().all(|(name, value)| has_tag(inputs, name, value))
    }
}

fn has_tag(inputs: &Inputs, name: &str, value: &str) -> bool {
    tags(inputs).any(|(found, there)| found == name && there == value)
}

/// The tags of a message's source, as its certificate has them.
pub(crate) fn tags(inputs: &Inputs) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let names = text(inputs, Property::PeerUriSans).unwrap_or_default();
    names.split(',').filter_map(|name| {
        let (name, value) = name.trim().strip_prefix(TAG)?.split_once('/')?;
        Some((decode_part(name)?, decode_part(value)?))
    })
}

/// The mesh and the service of a SPIFFE identity, `spiffe://<mesh>/<service>`.
pub(crate) fn spiffe(identity: &str) -> Option<(&str, &str)> {
    let (mesh, service) = identity.strip_prefix("spiffe://")?.split_once('/')?;
    (!mesh.is_empty() && !service.is_empty()).then_some((mesh, service))
}

fn text(inputs: &Inputs, property: Property) -> Option<&str> {
    inputs.property(property).and_then(|bytes| str::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(service: Option<&str>, tags: &[(&str, &str)]) -> Selector {
        let tags = tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Selector { mesh: "m".into(), service: service.map(Into::into), tags }
    }

    fn check(selector: &Selector, names: &[&str], expect: bool) {
        let mut inputs = Inputs::default();
        if let Some(first) = names.first() {
            inputs.set(Property::PeerUriSan, first.as_bytes().to_vec());
        }
        inputs.set(Property::PeerUriSans, names.join(",").into_bytes());
        assert_eq!(selector.selects(&inputs), expect, "{selector:?} {names:?}");
    }

    #[test]
    fn selects_by_mesh_and_service() {
        check(&selector(None, &[]), &["spiffe://m/web"], true);
        check(&selector(None, &[]), &["spiffe://other/web"], false);
        check(&selector(None, &[]), &["https://m/web"], false);
        check(&selector(None, &[]), &[], false);
        check(&selector(Some("web"), &[]), &["spiffe://m/web"], true);
        check(&selector(Some("web"), &[]), &["spiffe://m/web2"], false);
    }

    #[test]
    fn selects_by_tags() {
        let v1 = selector(Some("web"), &[("version", "v1")]);
        check(&v1, &["spiffe://m/web", "postern://tag/version/v1"], true);
        check(&v1, &["spiffe://m/web", "postern://tag/zone/a", "postern://tag/version/v1"], true);
        check(&v1, &["spiffe://m/web", "postern://tag/version/v2"], false);
        check(&v1, &["spiffe://m/web"], false);
        check(&v1, &["postern://tag/version/v1"], false);
        let odd = selector(None, &[("a/b", "c, d+e")]);
        check(&odd, &["spiffe://m/web", "postern://tag/a%2Fb/c%2C%20d+e"], true);
    }
}
