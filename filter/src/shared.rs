//! Values that all workers share, and a cache of those that this worker has written.
//!
//! A limit reads its bucket, and writes it back if the version is still the one that was read. Reading costs more than
//! writing: for memory that it hands over, Envoy first notes which calls a module may make meanwhile. So a worker that
//! found no other writer of a value goes on from its own last write. If there is another writer after all, the next
//! write fails by its version.
//!
//! A worker does not learn the version of its own write, and assumes the next number. That is safe as long as versions
//! are counted up. Until the write, the value had version *v*. A number between *v* and the version of the write
//! belongs to another value, and a later writer of this value gets a higher number. So if the value has version *v* +
//! 1, we wrote it.
//!
//! A decision without a write may use an old value. It is right all the same: what others wrote in between made the
//! bucket emptier, so the current value would not have been more generous.

use std::{cell::RefCell, sync::Arc};

use postern_engine::host::SharedValue;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::host::{self, HostError};

/// A version that no value has, since versions are counted up from 1. A write with it succeeds only if the value is
/// absent.
const ABSENT: u32 = u32::MAX;

thread_local! {
    static KNOWN: RefCell<FxHashMap<usize, CachedValue>> = const { RefCell::new(FxHashMap::with_hasher(FxBuildHasher)) };
}

/// A cached value.
#[derive(Debug)]
struct CachedValue {
    key: Arc<str>,
    /// The value that was written last.
    value: SharedValue,
    /// The version of that write, if nobody else has written any value.
    version: Option<u32>,
    /// Whether no other worker had written the value when that was last checked.
    alone: bool,
}

/// Creates a value that a plan will ask for by this key. An empty value means the same as an absent one, but gives all
/// workers the same version from the first request on.
pub(crate) fn prepare(key: Arc<str>) -> Result<(), HostError> {
    if host::shared_data(&key)?.is_none() {
        host::set_shared_data(&key, &[], ABSENT)?;
    }
    // A plan that makes the key anew for each request could not be told by where the key lies.
    if Arc::strong_count(&key) == 1 {
        return Ok(());
    }
    KNOWN.with_borrow_mut(|known| {
        let entry = CachedValue { key: Arc::clone(&key), value: SharedValue::new(), version: None, alone: false };
        known.insert(place(&key), entry);
    });
    Ok(())
}

/// Drops cached values whose plans are gone.
pub(crate) fn forget_old() {
    KNOWN.with_borrow_mut(|known| known.retain(|_, value| Arc::strong_count(&value.key) > 1));
}

/// A value and its version. An absent value is empty and has version 0.
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

/// Stores a value; `false` if its version is no longer this one, so that it must be loaded again. Version 0 stores it
/// only if it is absent.
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
fn with(key: &Arc<str>, act: impl FnOnce(&mut CachedValue)) {
    KNOWN.with_borrow_mut(|known| known.get_mut(&place(key)).map(act));
}

/// The address of a key. It does not change as long as we hold the key, and is faster to look up than its text.
fn place(key: &Arc<str>) -> usize {
    Arc::as_ptr(key).addr()
}
