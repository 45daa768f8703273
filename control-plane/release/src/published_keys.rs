//! What the conditions of an Issuer say of the key set that it publishes. The control plane fetches the set itself, so
//! that an Issuer without one is not ready for use, however valid it is.

use postern_compile::keys::{KeySetReport, KeySetState};

use crate::condition::{ConditionType, Conditions, Truth};

/// Changes the conditions of an Issuer by the state of its key set: `Initialized` is false as long as no set was ever
/// fetched and the last try failed, unknown before the first try, and true but `KeysStale` while the last known set is
/// used on because a newer one cannot be fetched. Conditions that are false for another reason stay.
pub fn show_keys(conditions: &mut Conditions, keys: &KeySetReport) {
    let Some(found) = conditions.get(ConditionType::Initialized, None).filter(|found| found.status == Truth::True)
    else {
        return;
    };
    let since = found.last_transition_time;
    let error = keys.last_error.as_ref().map(|error| error.message.as_str());
    let uri = &keys.uri;
    let (status, reason, message) = match (keys.state, error) {
        (KeySetState::Fresh | KeySetState::Restored, _) | (KeySetState::Stale, None) => return,
        (KeySetState::Stale, Some(error)) => {
            (Truth::True, "KeysStale", format!("{uri}: {error}; the keys that are known are used on"))
        }
        (KeySetState::Missing, Some(error)) => (Truth::False, "KeysUnavailable", format!("{uri}: {error}")),
        (KeySetState::Missing, None) => (Truth::Unknown, "KeysPending", format!("{uri}: the keys are being fetched")),
    };
    let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(since);
    let generation = found.observed_generation;
    conditions.set((ConditionType::Initialized, None), status, (reason, message), at);
    conditions.observed(generation);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use postern_compile::keys::FetchError;
    use postern_model::KeyUri;

    use super::*;

    fn check(before: Truth, state: KeySetState, error: Option<&str>, expect: (Truth, &str, &str)) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let mut conditions = Conditions::default();
        conditions.set((ConditionType::Initialized, None), before, ("Loaded", "as it was"), at);
        let uri = KeyUri::try_from("https://keys.example/jwks".to_owned()).unwrap();
        let last_error = error.map(|message| FetchError { at: 9, message: message.to_owned() });
        let (keys, skipped) = (0, Vec::new());
        let report = KeySetReport { uri, state, keys, skipped, last_success: None, last_error, next_fetch: None };
        show_keys(&mut conditions, &report);
        let found = conditions.get(ConditionType::Initialized, None).unwrap();
        assert_eq!((found.status, found.reason.as_str(), found.message.as_str()), expect);
        assert_eq!(found.last_transition_time, 7_000);
    }

    #[test]
    fn an_issuer_without_keys_is_not_initialized() {
        use Truth::{False, True, Unknown};
        let uri = "https://keys.example/jwks";
        use KeySetState::{Fresh, Missing, Restored, Stale};
        check(True, Missing, Some("no answer"), (False, "KeysUnavailable", &format!("{uri}: no answer")));
        check(True, Missing, None, (Unknown, "KeysPending", &format!("{uri}: the keys are being fetched")));
        check(True, Fresh, None, (True, "Loaded", "as it was"));
        check(True, Restored, None, (True, "Loaded", "as it was"));
        let stale = format!("{uri}: no answer; the keys that are known are used on");
        check(True, Stale, Some("no answer"), (True, "KeysStale", &stale));
        check(False, Missing, Some("no answer"), (False, "Loaded", "as it was"));
    }
}
