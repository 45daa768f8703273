//! Values that all workers share, and what this worker knows of them without asking.
//!
//! A limit reads its bucket, and writes it back if its version is still the one that was read. Reading is the dearer half:
//! for memory that it hands over, Envoy first writes down which calls a module may make meanwhile. So a worker that found
//! itself alone with a value goes on from what it wrote last, and leaves it to the write to find out that it is not.
//!
//! It does not know what version its own write got, and takes it to be the next number. That is never wrong in silence, as
//! long as versions are counted up: until the write, the value had version *v*, so a number between *v* and what the write
//! got is another value's, and whoever writes this one later gets a higher number. If the value has version *v* + 1, then we
//! wrote it. What is decided without a write is decided on what may be old, but is right all the same: whatever others
//! wrote in between made a bucket emptier, so it would be no more generous.

use std::{cell::RefCell, sync::Arc};

use postern_engine::host::SharedValue;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::host::{self, HostError};

/// A version that no value has: versions are counted up from 1. Whoever writes with it writes only where there is no value.
const ABSENT: u32 = u32::MAX;

thread_local! {
    static KNOWN: RefCell<FxHashMap<usize, Known>> = const { RefCell::new(FxHashMap::with_hasher(FxBuildHasher)) };
}

/// What this worker knows of a value.
#[derive(Debug)]
struct Known {
    key: Arc<str>,
    /// What was written last, …
    value: SharedValue,
    /// … and the version that it got, if nobody else wrote anything.
    version: Option<u32>,
    /// Whether nobody had written in between when that was last looked at.
    alone: bool,
}

/// Makes a value that a plan will ask for by this very key. An empty value is as good as none, but all workers then
/// agree on its version from the first request on.
pub(crate) fn prepare(key: Arc<str>) -> Result<(), HostError> {
    if host::shared_data(&key)?.is_none() {
        host::set_shared_data(&key, &[], ABSENT)?;
    }
    // A plan that makes the key anew for each request could not be told by where the key lies.
    if Arc::strong_count(&key) == 1 {
        return Ok(());
    }
    KNOWN.with_borrow_mut(|known| {
        let entry = Known { key: Arc::clone(&key), value: SharedValue::new(), version: None, alone: false };
        known.insert(place(&key), entry);
    });
    Ok(())
}

/// Forgets values whose plans are gone.
pub(crate) fn forget_old() {
    KNOWN.with_borrow_mut(|known| known.retain(|_, value| Arc::strong_count(&value.key) > 1));
}

/// A value and its version; nothing and 0 if there is none.
#[inline]
pub(crate) fn load(key: &Arc<str>) -> Result<(SharedValue, u32), HostError> {
    let remembered = KNOWN.with_borrow(|known| {
        let known = known.get(&place(key)).filter(|known| known.alone)?;
        // One bucket is a plain copy.
        let bucket = <[u8; 16]>::try_from(known.value.as_slice());
        Some((bucket.map_or_else(|_| known.value.clone(), SharedValue::from_buf), known.version?))
    });
    if let Some(remembered) = remembered {
        return Ok(remembered);
    }
    let (value, version) = host::shared_data(key)?.unwrap_or_default();
    with(key, |known| known.alone = known.version == Some(version));
    Ok((SharedValue::from_slice(&value), version))
}

/// Stores a value; `false` if its version is no longer this one, and it must be loaded again. Version 0 stores a value where
/// there is none.
#[inline]
pub(crate) fn store(key: &Arc<str>, value: SharedValue, version: u32) -> Result<bool, HostError> {
    let stored = host::set_shared_data(key, &value, if version == 0 { ABSENT } else { version })?;
    with(key, |known| match stored {
        true => {
            known.value = value;
            // What a value that was not there gets is any number.
            known.version = version.checked_add(1).filter(|_| version != 0);
        }
        false => known.alone = false,
    });
    Ok(stored)
}

#[inline]
fn with(key: &Arc<str>, act: impl FnOnce(&mut Known)) {
    KNOWN.with_borrow_mut(|known| known.get_mut(&place(key)).map(act));
}

/// Where a key lies: it stays there as long as we have it, and is faster to find than its text.
fn place(key: &Arc<str>) -> usize {
    Arc::as_ptr(key).addr()
}
