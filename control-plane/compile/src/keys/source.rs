//! One published key set: when to fetch it, and what becomes of an answer. Time is an argument, as the time since some
//! start that only grows; so is chance.

use std::{sync::Arc, time::Duration};

use postern_model::{
    KeyUri,
    jwk::{KeySet, Skipped},
};

/// The first wait after a failure; it doubles with every further one …
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// … up to this, or to the refresh interval if that is shorter.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A set that says that it is fresh for less is not fetched more often than this, unless the user wants it.
const SHORTEST_FRESHNESS: Duration = Duration::from_secs(10);

/// One published key set, and how its fetching goes.
#[derive(Debug)]
pub struct Source {
    refresh: Duration,
    set: Option<Arc<KeySet>>,
    skipped: Vec<Skipped>,
    /// What its publisher calls the version that we have.
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

/// What to ask the publisher for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// Where the set is published.
    pub uri: KeyUri,
    /// What the publisher calls the version that is known already.
    pub tag: Option<String>,
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The publisher answered.
    Fresh {
        /// With what.
        content: Content,
        /// For how long it says that to be so.
        max_age: Option<Duration>,
    },
    /// It did not, or not well; in words for people, without a credential.
    Failed(String),
}

/// What a publisher says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// This, by this name.
    Body(Vec<u8>, Option<String>),
    /// What is known already.
    Unchanged,
}

impl Source {
    /// A set that is to be fetched at once.
    pub fn new(refresh: Duration, now: Duration) -> Self {
        Self {
            refresh,
            set: None,
            skipped: Vec::new(),
            tag: None,
            failures: 0,
            last_success: None,
            last_error: None,
            next: Next::At(now),
        }
    }

    /// The keys that were fetched last.
    pub fn set(&self) -> Option<&Arc<KeySet>> {
        self.set.as_ref()
    }

    /// The keys that were left out of it.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// When its publisher last answered well.
    pub fn last_success(&self) -> Option<Duration> {
        self.last_success
    }

    /// When it last did not and why, if it has not answered well since.
    pub fn last_error(&self) -> Option<&(Duration, String)> {
        self.last_error.as_ref()
    }

    /// When it is to be fetched next; nothing while it is under way.
    pub fn due(&self) -> Option<Duration> {
        match self.next {
            Next::At(time) => Some(time),
            Next::UnderWay => None,
        }
    }

    /// Wants another interval: a shorter one counts from the last fetch on.
    pub fn set_refresh(&mut self, refresh: Duration) {
        if let (Next::At(due), Some(last)) = (self.next, self.last_success) {
            self.next = Next::At(due.min(last.saturating_add(refresh)));
        }
        self.refresh = refresh;
    }

    /// Starts a fetch.
    pub fn start(&mut self, uri: &KeyUri) -> Fetch {
        self.next = Next::UnderWay;
        Fetch { uri: uri.clone(), tag: self.tag.clone() }
    }

    /// Takes what came of a fetch. `chance` is from 0 to 1: it keeps many control planes from asking all at once.
    /// Returns whether the keys have changed.
    pub fn finish(&mut self, answer: Fetched, now: Duration, chance: f64) -> bool {
        let outcome = match answer {
            Fetched::Fresh { content, max_age } => self.take(content).map(|changed| (changed, max_age)),
            Fetched::Failed(message) => Err(message),
        };
        let (changed, wait) = match outcome {
            Ok((changed, max_age)) => {
                self.failures = 0;
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

/// A part of a wait, at least this share of it.
fn spread(wait: Duration, least: f64, chance: f64) -> Duration {
    let chance = if chance.is_nan() { 0.0 } else { chance.clamp(0.0, 1.0) };
    wait.mul_f64(least + (1.0 - least) * chance)
}
