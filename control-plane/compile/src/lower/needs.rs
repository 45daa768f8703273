//! What the steps of a plan use, so that a plan contains no credential that no step checks, and no consumer that no
//! step can identify.

use std::collections::{BTreeMap, BTreeSet};

use postern_model::Consumer;
use postern_proto::plan::v1::{Chain, Steps, step::Policy};

use super::Lowering;

/// The credentials and issuers that the steps of a plan use.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) api_keys: bool,
    pub(super) passwords: bool,
    pub(super) hmac_keys: bool,
    /// Whether a token can name a consumer.
    names: bool,
    issuers: BTreeSet<u32>,
}

impl Needs {
    /// Whether a step can identify this consumer.
    pub(super) fn has_use_for(&self, consumer: &Consumer) -> bool {
        self.names
            || (self.api_keys && !consumer.api_keys.is_empty())
            || (self.passwords && consumer.basic_auth.is_some())
            || (self.hmac_keys && !consumer.hmac.is_empty())
    }
}

impl Lowering {
    /// The needs of all lowered chains.
    pub(super) fn needs(&mut self) -> Needs {
        let nobody = self.string("");
        let mut needs = Needs::default();
        for policy in self.plan.chains.iter_mut().flat_map(policies) {
            match policy {
                Policy::ApiKeyAuth(_) => needs.api_keys = true,
                Policy::BasicAuth(_) => needs.passwords = true,
                Policy::HmacAuth(_) => needs.hmac_keys = true,
                Policy::JwtValidation(step) => {
                    needs.names |= step.consumer_claim != nobody;
                    needs.issuers.extend(&step.issuers);
                }
                _ => {}
            }
        }
        needs
    }

    /// Removes the issuers that no step uses, with their keys.
    pub(super) fn keep_issuers(&mut self, needs: &Needs) {
        let places: BTreeMap<u32, u32> = needs.issuers.iter().copied().zip(0..).collect();
        let mut index = 0..;
        self.plan.issuers.retain(|_| index.next().is_some_and(|index| needs.issuers.contains(&index)));
        for policy in self.plan.chains.iter_mut().flat_map(policies) {
            if let Policy::JwtValidation(step) = policy {
                step.issuers.iter_mut().for_each(|issuer| *issuer = places.get(issuer).copied().unwrap_or(u32::MAX));
            }
        }
    }
}

fn policies(chain: &mut Chain) -> impl Iterator<Item = &mut Policy> {
    let phases = [chain.request.as_mut(), chain.response.as_mut()].into_iter().flatten();
    phases.flat_map(|Steps { steps, .. }| steps).filter_map(|step| step.policy.as_mut())
}
