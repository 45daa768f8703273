//! The state of one published key set: when to fetch it, and how an answer changes it. Time (since 1970, and never
//! backwards) and chance are arguments.

use std::{sync::Arc, time::Duration};

use postern_model::{
    KeyUri,
    jwk::{KeySet, Skipped},
};

use super::stored::StoredKeySet;

/// The wait after a first failure. It doubles with each further failure …
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// … up to this, or to the refresh interval if that is shorter.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The shortest wait after a success, even if the publisher says that the set is fresh for less. A shorter refresh
/// interval of the user takes precedence.
const SHORTEST_FRESHNESS: Duration = Duration::from_secs(10);

/// One published key set, and the state of its fetching.
#[derive(Debug)]
pub struct Source {
    refresh: Duration,
    set: Option<Arc<KeySet>>,
    /// The text that the set was read from.
    text: Option<Arc<str>>,
    /// Whether the set is an earlier process's.
    restored: bool,
    skipped: Vec<Skipped>,
    /// The entity tag of the known version.
    tag: Option<String>,
    failures: u32,
    last_success: Option<Duration>,
    last_error: Option<(Duration, String)>,
    next: Next,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    At(Duration),
    UnderWay,
}

/// A conditional request for a key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The address of the set.
    pub uri: KeyUri,
    /// The entity tag of the known version.
    pub tag: Option<String>,
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The publisher answered successfully.
    Fresh {
        /// The answer.
        content: Content,
        /// How long the publisher says that it is fresh.
        max_age: Option<Duration>,
    },
    /// The fetch failed. The text has no credential.
    Failed(String),
}

/// The content of a successful answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A body, and its entity tag.
    Body(Vec<u8>, Option<String>),
    /// The known version is current ("not modified").
    Unchanged,
}

impl Source {
    /// A set that is due now.
    pub fn new(refresh: Duration, now: Duration) -> Self {
        Self {
            refresh,
            set: None,
            text: None,
            restored: false,
            skipped: Vec::new(),
            tag: None,
            failures: 0,
            last_success: None,
            last_error: None,
            next: Next::At(now),
        }
    }

    /// A set as an earlier process kept it, due now. A set that cannot be read any more is not known.
    pub(super) fn restored(stored: StoredKeySet, now: Duration) -> Self {
        let StoredKeySet { text, tag, fetched_at, .. } = stored;
        let mut source = Self::new(Duration::MAX, now);
        // A clock that was set back makes no set younger than now.
        let fetched_at = Duration::from_secs(fetched_at).min(now);
        match source.take(Content::Body(text.as_bytes().to_vec(), tag)) {
            Ok(_) => (source.last_success, source.restored) = (Some(fetched_at), true),
            Err(message) => source.last_error = Some((now, message)),
        }
        source
    }

    /// What is kept of the set, if it is known.
    pub(super) fn stored(&self, uri: &KeyUri) -> Option<StoredKeySet> {
        let (text, fetched_at) = (self.text.as_ref()?.to_string(), self.last_success?.as_secs());
        Some(StoredKeySet { uri: uri.clone(), text, tag: self.tag.clone(), fetched_at })
    }

    /// The keys of the last successful fetch, by this process or an earlier one. `None` if there was none.
    pub fn set(&self) -> Option<&Arc<KeySet>> {
        self.set.as_ref()
    }

    /// Whether the set is an earlier process's, and was not fetched again since.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// The keys that were skipped in it.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The time of the last successful fetch.
    pub fn last_success(&self) -> Option<Duration> {
        self.last_success
    }

    /// The time of the last failure and its reason. `None` if a success followed.
    pub fn last_error(&self) -> Option<&(Duration, String)> {
        self.last_error.as_ref()
    }

    /// When the next fetch is due. `None` during a fetch.
    pub fn due(&self) -> Option<Duration> {
        match self.next {
            Next::At(time) => Some(time),
            Next::UnderWay => None,
        }
    }

    /// Changes the refresh interval. A shorter one counts from the last successful fetch.
    pub fn set_refresh(&mut self, refresh: Duration) {
        if let (Next::At(due), Some(last)) = (self.next, self.last_success) {
            self.next = Next::At(due.min(last.saturating_add(refresh)));
        }
        self.refresh = refresh;
    }

    /// Marks a fetch as started, and returns the request.
    pub fn start(&mut self, uri: &KeyUri) -> Fetch {
        self.next = Next::UnderWay;
        Fetch { uri: uri.clone(), tag: self.tag.clone() }
    }

    /// Records the result of a fetch, and schedules the next one. Returns whether the keys have changed. `chance`, from
    /// 0 to 1, spreads the fetches of many control planes.
    pub fn finish(&mut self, answer: Fetched, now: Duration, chance: f64) -> bool {
        let outcome = match answer {
            Fetched::Fresh { content, max_age } => self.take(content).map(|changed| (changed, max_age)),
            Fetched::Failed(message) => Err(message),
        };
        let (changed, wait) = match outcome {
            Ok((changed, max_age)) => {
                (self.failures, self.restored) = (0, false);
                self.last_success = Some(now);
                self.last_error = None;
                (changed, spread(self.freshness(max_age), 0.9, chance))
            }
            Err(message) => {
                self.failures = self.failures.saturating_add(1);
                self.last_error = Some((now, message));
                (false, spread(self.backoff(), 0.5, chance))
            }
        };
        self.next = Next::At(now.saturating_add(wait));
        changed
    }

    fn take(&mut self, content: Content) -> Result<bool, String> {
        match content {
            Content::Unchanged if self.set.is_some() => Ok(false),
            Content::Unchanged => Err("the answer is `not modified`, but nothing is known yet".to_owned()),
            Content::Body(body, tag) => {
                let (set, skipped) = KeySet::read(&body).map_err(|error| error.to_string())?;
                let text = str::from_utf8(&body).map_err(|_| "the answer is not UTF-8".to_owned())?;
                self.text = Some(text.into());
                let changed = self.set.as_deref() != Some(&set);
                if changed {
                    self.set = Some(Arc::new(set));
                }
                (self.skipped, self.tag) = (skipped, tag);
                Ok(changed)
            }
        }
    }

    fn freshness(&self, max_age: Option<Duration>) -> Duration {
        let shortest = SHORTEST_FRESHNESS.min(self.refresh);
        max_age.unwrap_or(self.refresh).clamp(shortest, self.refresh)
    }

    fn backoff(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let longest = LONGEST_WAIT.min(self.refresh).max(FIRST_WAIT);
        FIRST_WAIT.saturating_mul(1 << doublings).min(longest)
    }
}

/// Scales a wait by a factor between `least` and 1.
fn spread(wait: Duration, least: f64, chance: f64) -> Duration {
    let chance = if chance.is_nan() { 0.0 } else { chance.clamp(0.0, 1.0) };
    wait.mul_f64(least + (1.0 - least) * chance)
}
