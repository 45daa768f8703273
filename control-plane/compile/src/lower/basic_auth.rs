//! Lowers `basicAuth`.

use postern_proto::plan::v1::{BasicAuth, step::Policy};

use super::{Lowering, policies::LowerError};
use crate::params::BasicAuthParams;

impl Lowering {
    pub(super) fn basic_auth(&mut self, params: &BasicAuthParams) -> Result<Policy, LowerError> {
        let realm = &params.realm;
        if realm.contains(['"', '\\']) {
            return Err(LowerError::Value("a realm cannot have `\"` or `\\` in it"));
        }
        Ok(Policy::BasicAuth(BasicAuth { realm: self.string(realm), remove: !params.forward }))
    }
}
