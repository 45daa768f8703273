//! `hmacAuth` and the keys of consumers.

use std::time::Duration;

use postern_proto::plan::v1::{HmacAuth, HmacKey, step::Policy};
use serde::Deserialize;

use super::{Lowering, Place};
use crate::model::{self, quote, unit};

const DEFAULT_COMPONENTS: [&str; 4] = ["@method", "@authority", "@path", "@query"];
const DERIVED: [&str; 7] = ["@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query"];
const DEFAULT_WINDOW: Duration = Duration::from_secs(300);
const DEFAULT_SKEW: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HmacAuthParams {
    components: Option<Vec<String>>,
    label: Option<String>,
    window: Option<String>,
    clock_skew: Option<String>,
    require_date: Option<bool>,
    require_digest: Option<bool>,
    refuse_replays: Option<bool>,
}

impl Lowering {
    pub(super) fn hmac_key(&mut self, key: &model::HmacKey) -> HmacKey {
        HmacKey { id: self.string(&key.key_id), secret: key.secret.0.clone() }
    }

    pub(super) fn hmac_auth(&mut self, place: &Place<'_>, params: &HmacAuthParams) -> Policy {
        let defaults = || DEFAULT_COMPONENTS.map(str::to_owned).to_vec();
        let components: Vec<_> =
            params.components.clone().unwrap_or_else(defaults).iter().map(|name| name.to_ascii_lowercase()).collect();
        for (index, name) in components.iter().enumerate() {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if !DERIVED.contains(&name.as_str()) && (name.is_empty() || !name.bytes().all(token)) {
                let known: Vec<_> = DERIVED.iter().map(|name| format!("`{name}`")).collect();
                let message = format!("expected a header or one of {}, found {}", known.join(", "), quote(name));
                self.error(place, &format!("params.components[{index}]"), message);
            }
        }
        let label = params.label.as_deref().unwrap_or_default();
        if params.label.is_some() && !is_key(label) {
            let message = format!("expected a label such as `sig1`, found {}", quote(label));
            self.error(place, "params.label", message);
        }
        let time = |written: &Option<String>, default| {
            let time = written.as_deref().and_then(unit::duration).unwrap_or(default);
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        // The same in every revision, so that an update does not forget what was seen.
        let replays = match params.refuse_replays {
            Some(false) => String::new(),
            _ => place.step.id(),
        };
        Policy::HmacAuth(HmacAuth {
            components: components.iter().map(|name| self.string(name)).collect(),
            label: self.string(label),
            window_ns: time(&params.window, DEFAULT_WINDOW),
            skew_ns: time(&params.clock_skew, DEFAULT_SKEW),
            require_date: params.require_date.unwrap_or(true),
            require_digest: params.require_digest.unwrap_or(true),
            replays: self.string(&replays),
        })
    }
}

/// RFC 8941, section 3.1.2.
fn is_key(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase() || first == '*')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c))
}
