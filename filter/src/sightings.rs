//! Counters of routes, for nodes whose routes the control plane does not know: requests on routes without a chain, and
//! the first use of each route that a policy names. The counters outlive plans: each is defined once for each VM.

use std::cell::RefCell;

use postern_engine::Plan;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::{host, notices};

/// How many routes have a counter of their own, of each kind. All others share one.
const MOST: usize = 256;
/// The longest route name in a counter's name.
const LONGEST: usize = 128;
/// The name of the counter that all other routes share. [`UNNAMED`] is that of requests without a route's name.
const OTHER: &str = "_other";
const UNNAMED: &str = "_unnamed";

/// The prefix of the counters of routes without a chain.
const UNGUARDED_PREFIX: &str = "postern.unguarded.";

thread_local! {
    static UNGUARDED: RefCell<Counters> = const { RefCell::new(Counters::new(UNGUARDED_PREFIX)) };
    static TARGETS: RefCell<Counters> = const { RefCell::new(Counters::new("postern.target.")) };
}

/// Counters by route.
#[derive(Debug)]
struct Counters {
    prefix: &'static str,
    /// The counters by route; `None` if Envoy could not define one.
    known: FxHashMap<Box<[u8]>, Option<u32>>,
    other: Option<u32>,
}

/// Counts a request on a route without a chain.
#[inline(never)]
pub(crate) fn unguarded(route: &[u8]) {
    UNGUARDED.with_borrow_mut(|counters| counters.count(route));
}

/// Defines a counter for each route that a new plan names. It stays 0 until the route is used. The counter of a route
/// that the plan no longer names is increased, so that it does not look like a target that is never used.
pub(crate) fn expect(plan: &Plan) {
    TARGETS.with_borrow_mut(|counters| {
        for (route, counter) in &counters.known {
            if !plan.names_route(route) {
                increment(*counter);
            }
        }
        for name in plan.route_names().filter(|_| plan.counts_routes()) {
            counters.counter(name.as_bytes());
        }
    });
}

/// Counts the routes of a plan that were used for the first time.
#[cold]
#[inline(never)]
pub(crate) fn used<T: AsRef<str>>(routes: &[T]) {
    TARGETS.with_borrow_mut(|counters| routes.iter().for_each(|route| counters.count(route.as_ref().as_bytes())));
}

impl Counters {
    const fn new(prefix: &'static str) -> Self {
        Self { prefix, known: FxHashMap::with_hasher(FxBuildHasher), other: None }
    }

    fn count(&mut self, route: &[u8]) {
        increment(self.counter(route));
    }

    fn counter(&mut self, route: &[u8]) -> Option<u32> {
        match self.known.get(route) {
            Some(counter) => *counter,
            None => self.define(route),
        }
    }

    #[cold]
    fn define(&mut self, route: &[u8]) -> Option<u32> {
        if self.known.len() < MOST {
            let word = word(route);
            if self.prefix == UNGUARDED_PREFIX {
                notices::not_found(&word);
            }
            let counter = define(self.prefix, &word);
            self.known.insert(route.into(), counter);
            return counter;
        }
        if self.other.is_none() {
            self.other = define(self.prefix, OTHER);
        }
        self.other
    }
}

/// Defines a counter. If Envoy cannot, nothing is counted and requests go on.
fn define(prefix: &str, word: &str) -> Option<u32> {
    host::define_counter(&format!("{prefix}{word}")).inspect_err(|error| log::debug!("not counted: {error}")).ok()
}

fn increment(counter: Option<u32>) {
    if let Some(Err(error)) = counter.map(host::increment_counter) {
        log::debug!("not counted: {error}");
    }
}

/// A route's name as part of a counter's name: bytes other than letters, digits, `.`, `_` and `-` become `_`.
fn word(route: &[u8]) -> String {
    if route.is_empty() {
        return UNNAMED.to_owned();
    }
    let letter = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(*byte),
        _ => '_',
    };
    route.iter().take(LONGEST).map(letter).collect()
}
