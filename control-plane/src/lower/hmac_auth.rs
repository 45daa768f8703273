//! `hmacAuth` and the keys of consumers.

use std::time::Duration;

use postern_engine::replays::MOST_SIGNATURES;
use postern_proto::plan::v1::{HmacAuth, HmacKey, step::Policy};
use serde::Deserialize;

use super::{Lowering, Place};
use crate::model::{self, quote, unit};

const DEFAULT_COMPONENTS: [&str; 4] = ["@method", "@authority", "@path", "@query"];
const DERIVED: [&str; 7] = ["@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query"];
const DEFAULT_WINDOW: Duration = Duration::from_secs(300);
const DEFAULT_SKEW: Duration = Duration::from_secs(30);
/// How many requests a second one key signs, where nobody says.
const DEFAULT_RATE: u32 = 100;

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
    replay_rate: Option<u32>,
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
        let time = |written: &Option<String>, default| written.as_deref().and_then(unit::duration).unwrap_or(default);
        let (window, skew) = (time(&params.window, DEFAULT_WINDOW), time(&params.clock_skew, DEFAULT_SKEW));
        let replay_capacity = match params.refuse_replays {
            Some(false) => 0,
            _ => self.replay_capacity(place, params, window.saturating_add(skew)),
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Policy::HmacAuth(HmacAuth {
            components: components.iter().map(|name| self.string(name)).collect(),
            label: self.string(label),
            window_ns: nanoseconds(window),
            skew_ns: nanoseconds(skew),
            require_date: params.require_date.unwrap_or(true),
            require_digest: params.require_digest.unwrap_or(true),
            replay_capacity,
        })
    }

    /// How many signatures of one key can be good at a time: those of the whole window, and of clocks that are ahead.
    fn replay_capacity(&mut self, place: &Place<'_>, params: &HmacAuthParams, good: Duration) -> u32 {
        let seconds = good.as_nanos().div_ceil(1_000_000_000).saturating_add(1);
        let wanted = |rate: u32| u32::try_from(seconds.saturating_mul(rate.into())).unwrap_or(u32::MAX);
        match params.replay_rate {
            None => wanted(DEFAULT_RATE).min(MOST_SIGNATURES),
            Some(rate) if wanted(rate) > MOST_SIGNATURES => {
                let message = format!(
                    "{rate} signatures a second for {seconds}s are more than the {MOST_SIGNATURES} that are remembered of a \
                     key: lower `window`, or spread the load over several keys"
                );
                self.error(place, "params.replayRate", message);
                MOST_SIGNATURES
            }
            Some(rate) => wanted(rate),
        }
    }
}

/// RFC 8941, section 3.1.2.
fn is_key(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase() || first == '*')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c))
}
