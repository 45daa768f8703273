//! Lowers `hmacAuth`, and the keys of consumers.

use std::time::Duration;

use postern_base::diagnostic::quote;
use postern_engine::replays::MOST_SIGNATURES;
use postern_proto::plan::v1::{HmacAuth, HmacKey, step::Policy};

use super::{Lowering, Place};
use crate::params::HmacAuthParams;

const DERIVED: [&str; 7] = ["@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query"];

impl Lowering {
    pub(super) fn hmac_key(&mut self, key: &postern_model::HmacKey) -> HmacKey {
        HmacKey { id: self.string(&key.key_id), secret: key.secret.reveal().to_vec() }
    }

    pub(super) fn hmac_auth(&mut self, place: &Place<'_>, params: &HmacAuthParams) -> Policy {
        let components: Vec<_> = params.components.iter().map(|name| name.to_ascii_lowercase()).collect();
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
        let (window, skew) = (params.window.0, params.clock_skew.0);
        let replay_capacity = match params.refuse_replays {
            false => 0,
            true => self.replay_capacity(place, params.replay_rate, window.saturating_add(skew)),
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Policy::HmacAuth(HmacAuth {
            components: components.iter().map(|name| self.string(name)).collect(),
            label: self.string(label),
            window_ns: nanoseconds(window),
            skew_ns: nanoseconds(skew),
            require_date: params.require_date,
            require_digest: params.require_digest,
            replay_capacity,
        })
    }

    /// The number of signatures of one key that can be valid at a time: those of the time window, and of clocks that
    /// are ahead.
    fn replay_capacity(&mut self, place: &Place<'_>, rate: u32, good: Duration) -> u32 {
        let seconds = good.as_nanos().div_ceil(1_000_000_000).saturating_add(1);
        let wanted = u32::try_from(seconds.saturating_mul(rate.into())).unwrap_or(u32::MAX);
        // Only an explicit rate is an error. The default is reduced to what fits.
        if wanted > MOST_SIGNATURES && place.step.step.params.get("replayRate").is_some() {
            let message = format!(
                "{rate} signatures a second for {seconds}s are more than the {MOST_SIGNATURES} that are remembered of a \
                 key: lower `window`, or spread the load over several keys"
            );
            self.error(place, "params.replayRate", message);
        }
        wanted.min(MOST_SIGNATURES)
    }
}

/// Whether a text is a key (RFC 8941, section 3.1.2).
fn is_key(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase() || first == '*')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c))
}
