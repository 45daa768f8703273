//! The descriptors of Envoy's messages, which the build script has prepared.

use std::sync::LazyLock;

use postern_base::diagnostic::{quote, suggestion};
use prost_reflect::{DescriptorPool, MessageDescriptor};

/// The prefix of type URLs.
const PREFIX: &str = "type.googleapis.com/";

/// Decoded on first use, which takes about 30 ms. Without raw resources, polls and files it is never needed.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin"));
    // The build script has decoded the same bytes. An empty pool makes every type unknown, which is reported.
    DescriptorPool::decode(bytes).unwrap_or_default()
});

/// The descriptor of the message with this full name.
pub(super) fn message(name: &str) -> Option<MessageDescriptor> {
    POOL.get_message_by_name(name)
}

/// The descriptor for a type URL, or an error that says what is wrong with the URL.
pub(super) fn by_type_url(url: &str) -> Result<MessageDescriptor, String> {
    let name = match url.rsplit_once('/') {
        Some((_, name)) => name,
        None if message(url).is_some() => {
            return Err(format!("unknown type {}: did you mean {}?", quote(url), quote(&format!("{PREFIX}{url}"))));
        }
        None => url,
    };
    message(name).ok_or_else(|| format!("unknown type {}{}", quote(url), near_type(name)))
}

/// All messages.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = MessageDescriptor> {
    POOL.all_messages()
}

/// A suggestion for an unknown full name: the same name in another package, or a similar one.
fn near_type(name: &str) -> String {
    let short = last_part(name);
    let names = || POOL.all_messages().map(|message| message.full_name().to_owned());
    let in_other_package = names().filter(|known| last_part(known) == short).max_by_key(|known| common(known, name));
    let near = in_other_package.or_else(|| {
        let package = name.strip_suffix(short)?;
        let siblings: Vec<_> = names().filter_map(|known| Some(known.strip_prefix(package)?.to_owned())).collect();
        // Compares the last part alone, since full names are too long for suggestions.
        let suggested = suggestion(short, siblings.iter().map(String::as_str));
        siblings.iter().find(|sibling| suggested.contains(&quote(sibling))).map(|sibling| format!("{package}{sibling}"))
    });
    near.map_or_else(String::new, |near| format!(": did you mean {}?", quote(&format!("{PREFIX}{near}"))))
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The number of leading characters that two names share.
fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expect: Result<&str, &str>) {
        let found = by_type_url(url).map(|message| message.full_name().to_owned());
        assert_eq!(found.as_deref().map_err(String::as_str), expect);
    }

    #[test]
    fn finds_messages_by_their_type() {
        let name = "envoy.config.listener.v3.Listener";
        check(&format!("{PREFIX}{name}"), Ok(name));
        check("type.googleapis.com/xds.type.v3.TypedStruct", Ok("xds.type.v3.TypedStruct"));
        check("type.googleapis.com/udpa.type.v1.TypedStruct", Ok("udpa.type.v1.TypedStruct"));
    }

    #[test]
    fn suggests_types() {
        check(
            "envoy.config.listener.v3.Listener",
            Err("unknown type `envoy.config.listener.v3.Listener`: did you mean \
                `type.googleapis.com/envoy.config.listener.v3.Listener`?"),
        );
        check(
            "type.googleapis.com/envoy.config.listener.v2.Listener",
            Err("unknown type `type.googleapis.com/envoy.config.listener.v2.Listener`: did you mean \
                `type.googleapis.com/envoy.config.listener.v3.Listener`?"),
        );
        check(
            "type.googleapis.com/envoy.config.listener.v3.Listner",
            Err("unknown type `type.googleapis.com/envoy.config.listener.v3.Listner`: did you mean \
                `type.googleapis.com/envoy.config.listener.v3.Listener`?"),
        );
        check("type.googleapis.com/acme.Thing", Err("unknown type `type.googleapis.com/acme.Thing`"));
        check("", Err("unknown type ``"));
    }
}
