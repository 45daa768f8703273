//! What a node cache tells the control plane about a node that it relays: that it is there, and when it last served the
//! node by itself. It travels in the node's metadata, and is no part of the node's identity.

use std::time::{SystemTime, UNIX_EPOCH};

use envoy_types::pb::{
    envoy::config::core::v3::Node,
    google::protobuf::{Struct, Value, value::Kind},
};
use schemars::JsonSchema;
use serde::Serialize;

/// The field of `node.metadata`.
const FIELD: &str = "postern.node-cache";
const VERSION: &str = "version";
const FROM: &str = "servedFrom";
const UNTIL: &str = "servedUntil";

/// The longest version that is read, in bytes.
const LONGEST_VERSION: usize = 64;

/// A node cache between a node and the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ViaCache {
    /// The version of the node cache.
    pub version: String,
    /// When it last served the node by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<Span>,
}

/// A span of time, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Span {
    /// Its begin.
    pub from: u64,
    /// Its end.
    pub until: u64,
}

impl Span {
    /// The shortest span with this begin, and an end not before it.
    pub fn between(from: SystemTime, until: SystemTime) -> Self {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { from: seconds(from), until: seconds(until).max(seconds(from)) }
    }
}

impl ViaCache {
    /// Reads what a node cache wrote. `None` if there is none, or if it is not what a node cache writes: any client can
    /// write there.
    pub fn read(node: &Node) -> Option<Self> {
        let value = node.metadata.as_ref()?.fields.get(FIELD)?;
        let Some(Kind::StructValue(Struct { fields })) = &value.kind else { return None };
        let Some(Kind::StringValue(version)) = &fields.get(VERSION)?.kind else { return None };
        let seconds = |field| match fields.get(field)?.kind {
            // Beyond 2^53 a number is no longer exact.
            Some(Kind::NumberValue(seconds)) if (0.0..9e15).contains(&seconds) => Some(seconds as u64),
            _ => None,
        };
        let is_short = version.len() <= LONGEST_VERSION && version.bytes().all(|byte| byte.is_ascii_graphic());
        let served = seconds(FROM).zip(seconds(UNTIL)).map(|(from, until)| Span { from, until });
        is_short.then(|| Self { version: version.clone(), served: served.filter(|span| span.from <= span.until) })
    }

    /// Writes it to a node's metadata, in place of what the node itself wrote there.
    pub fn write(&self, node: &mut Node) {
        let value = |kind| Value { kind: Some(kind) };
        let mut fields = vec![(VERSION.to_owned(), value(Kind::StringValue(self.version.clone())))];
        if let Some(Span { from, until }) = self.served {
            let seconds = |seconds: u64| value(Kind::NumberValue(seconds as f64));
            fields.extend([(FROM.to_owned(), seconds(from)), (UNTIL.to_owned(), seconds(until))]);
        }
        let written = value(Kind::StructValue(Struct { fields: fields.into_iter().collect() }));
        node.metadata.get_or_insert_default().fields.insert(FIELD.to_owned(), written);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::NodeIdentity;

    fn cache(version: &str) -> ViaCache {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        ViaCache { version: version.to_owned(), served: Some(Span::between(at(1_700_000_000), at(1_700_000_300))) }
    }

    #[test]
    fn reads_what_it_wrote_and_leaves_the_identity_as_it_is() {
        let mut node = Node { id: "edge".to_owned(), ..Node::default() };
        let identity = NodeIdentity::read(&node);
        assert_eq!(ViaCache::read(&node), None);
        for cache in [cache("0.1.0"), ViaCache { served: None, ..cache("0.2.0") }] {
            cache.write(&mut node);
            assert_eq!(ViaCache::read(&node), Some(cache));
            assert_eq!(NodeIdentity::read(&node), identity);
        }
    }

    #[test]
    fn reads_nothing_odd() {
        for version in ["x".repeat(LONGEST_VERSION + 1), "a\nb".to_owned(), "a b".to_owned()] {
            let mut node = Node::default();
            cache(&version).write(&mut node);
            assert_eq!(ViaCache::read(&node), None, "{version}");
        }
        let mut node = Node::default();
        let back = Span { from: 7, until: 3 };
        ViaCache { version: "1".to_owned(), served: Some(back) }.write(&mut node);
        assert_eq!(ViaCache::read(&node).unwrap().served, None);
        let text = Value { kind: Some(Kind::StringValue("x".to_owned())) };
        node.metadata = Some(Struct { fields: [(FIELD.to_owned(), text)].into() });
        assert_eq!(ViaCache::read(&node), None);
    }
}
