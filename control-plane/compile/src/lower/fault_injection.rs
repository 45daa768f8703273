//! Lowers `faultInjection`.

use std::time::Duration;

use postern_proto::plan::v1::{FaultInjection, InjectedAbort, InjectedDelay, step::Policy};

use super::{Lowering, Place, policies::LowerError};
use crate::params::FaultInjectionParams;

const LONGEST_DELAY: Duration = Duration::from_secs(300);

impl Lowering {
    pub(super) fn fault_injection(
        &mut self,
        place: &Place<'_>,
        params: &FaultInjectionParams,
    ) -> Result<Policy, LowerError> {
        if params.delay.is_none() && params.abort.is_none() {
            return Err(LowerError::Value("expected `delay` or `abort`"));
        }
        let delay = params.delay.as_ref().map(|delay| {
            let duration = delay.duration.0;
            if duration > LONGEST_DELAY {
                self.error(place, "params.delay.duration", "expected at most `5m`".to_owned());
            }
            let milliseconds = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
            InjectedDelay { milliseconds, percent: delay.percent }
        });
        let abort = params.abort.as_ref().map(|abort| InjectedAbort {
            status: abort.status,
            percent: abort.percent,
            body: abort.body.as_deref().map(|body| self.string(body)),
        });
        Ok(Policy::FaultInjection(FaultInjection { delay, abort }))
    }
}
