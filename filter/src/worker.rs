//! The worker on which runs are carried out: the engine's [`Host`], implemented by the modules of this crate.

use std::sync::Arc;

use postern_engine::{
    Host,
    host::{SharedValue, Unavailable},
    jwt::{Entry, SignatureCheck, TokenKey, Verified},
};

use crate::{host::HostError, shared, signature, tokens};

/// The current worker of Envoy. It has no fields, since a VM has only one.
#[derive(Debug)]
pub(crate) struct Worker;

impl Host for Worker {
    #[inline]
    fn load(&mut self, key: &Arc<str>) -> Result<(SharedValue, u32), Unavailable> {
        shared::load(key).map_err(|error| unavailable(key, &error))
    }

    #[inline]
    fn store(&mut self, key: &Arc<str>, value: SharedValue, version: u32) -> Result<bool, Unavailable> {
        shared::store(key, value, version).map_err(|error| unavailable(key, &error))
    }

    fn recall(&mut self, key: &TokenKey) -> Option<Arc<Verified>> {
        tokens::recall(key)
    }

    fn remember(&mut self, entry: Entry) {
        tokens::remember(entry);
    }

    fn verify(&mut self, check: &SignatureCheck) -> Option<bool> {
        signature::verify(check)
    }
}

#[cold]
fn unavailable(key: &str, error: &HostError) -> Unavailable {
    log::error!("shared value `{key}` is out of reach: {error}");
    Unavailable
}
