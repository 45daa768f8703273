//! Lowers issuers of tokens, with keys from the resource or from the fetched key sets.

use postern_base::diagnostic::{quote, suggestion};
use postern_model::{KeySource, Resource, jwk::Key};
use postern_proto::plan::v1::Issuer;

use super::{Lowering, Place};
use crate::{attach::Scope, keys::KeySets};

impl Lowering {
    /// Adds all issuers, sorted by name.
    pub(super) fn issuers(&mut self, scope: &Scope<'_>, sets: &KeySets) {
        for issuer in &scope.issuers {
            let lowered = self.lower_issuer(issuer, sets);
            self.plan.issuers.push(lowered);
            self.issuers.push(issuer.name.clone());
        }
    }

    /// The index in `Plan.issuers` of the issuer in a field such as `params.issuers[0]`. If there is none, records an
    /// error at that field and returns 0.
    pub(super) fn issuer(&mut self, place: &Place<'_>, field: &str, name: &str) -> u32 {
        match self.issuers.iter().position(|issuer| issuer == name) {
            Some(index) => u32::try_from(index).unwrap_or(u32::MAX),
            None => {
                let near = suggestion(name, self.issuers.iter().map(String::as_str));
                self.error(place, field, format!("unknown issuer {}{near}", quote(name)));
                0
            }
        }
    }

    fn lower_issuer(&mut self, issuer: &Resource<postern_model::Issuer>, sets: &KeySets) -> Issuer {
        let spec = &issuer.spec;
        let keys: Vec<Key> = match &spec.keys {
            KeySource::Inline(keys) => keys.clone(),
            KeySource::Published { uri, .. } => {
                let published = sets.get(uri).map_or(&[][..], |set| set.keys());
                published.iter().filter_map(|key| key.restricted_to(&spec.algorithms)).collect()
            }
        };
        Issuer {
            name: self.string(&issuer.name),
            issuer: self.string(&spec.issuer),
            audiences: spec.audiences.iter().map(|audience| self.string(audience)).collect(),
            // Without keys, a step fails instead of denying, since no token can be verified.
            keys_unavailable: keys.is_empty(),
            keys: keys.iter().map(|key| key.to_wire(self.string(key.id.as_deref().unwrap_or_default()))).collect(),
        }
    }
}
