//! `faultInjection`: delays some requests and ends others, to see how callers take it.

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, failure};
use crate::{
    ask::{Answer, Ask},
    event::{Needs, Phase},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema, Range},
    verdict::{Denial, Response},
};

const LONGEST_DELAY: u32 = 5 * 60 * 1000;
const PERCENT: Field = Field::optional("percent", Kind::Integer { min: 0, max: 100 }, "For how many of 100 requests.");

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "faultInjection",
    about: "Delays some requests and ends others, to see how callers take it; first the one, then the other. A request \
            that is delayed holds up no other.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("delay", Kind::Object(&DELAY), "Lets requests wait."),
            Field::optional("abort", Kind::Object(&ABORT), "Answers requests in place of the upstream."),
        ],
        exactly_one_of: &[],
    },
    endings: &[Ending {
        status: "`abort.status`",
        reason: "fault_injected",
        when: "the request is one of those to end",
    }],
    example: "\
- policy: faultInjection
  params: { delay: { duration: 50ms, percent: 10 }, abort: { status: 503, percent: 1 } }
  when: \"'x-test' in request.headers\"
",
};

const DELAY: Object = Object {
    fields: &[Field::required("duration", Kind::Duration, "How long; at most 5m."), PERCENT.or("100")],
    exactly_one_of: &[],
};

const ABORT: Object = Object {
    fields: &[
        Field::required("status", Kind::Integer { min: 200, max: 599 }, "The status."),
        PERCENT.or("100"),
        Field::optional("body", Kind::Text, "The body; a problem document if left out."),
    ],
    exactly_one_of: &[],
};

const SHARE: Range = ABORT.range("percent");

/// The loaded step.
#[derive(Debug)]
pub(crate) struct FaultInjection {
    delay: Option<(u32, u32)>,
    abort: Option<(Response, u32)>,
}

impl BuiltIn for FaultInjection {
    type Wire = wire::FaultInjection;
    type State = ();

    fn load(wire: &wire::FaultInjection, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let percent = |value: u32| SHARE.check("percent", value);
        let delay = match &wire.delay {
            None => None,
            Some(delay) if delay.milliseconds > LONGEST_DELAY => {
                let value = delay.milliseconds.into();
                return Err(LoadError::Range { what: "milliseconds", least: 0, most: LONGEST_DELAY.into(), value });
            }
            Some(delay) => Some((delay.milliseconds, percent(delay.percent)?)),
        };
        let abort = match &wire.abort {
            None => None,
            Some(abort) => {
                let status = strings.status(abort.status)?;
                let response = match abort.body {
                    None => Response::problem(status, "a fault was injected"),
                    Some(body) => {
                        let body = strings.get(body)?.as_bytes().to_vec();
                        Response { status, headers: Vec::new(), body }.with_header("content-type", "text/plain")
                    }
                };
                Some((response, percent(abort.percent)?))
            }
        };
        Ok(Self { delay, abort })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::RANDOM
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let [a, b, c, d, e, f, g, h, ..] = context.random();
        match (&self.delay, context.answer.take()) {
            (Some((milliseconds, percent)), None) if is_hit([a, b, c, d], *percent) => {
                Flow::Ask(Ask::Wait { milliseconds: *milliseconds })
            }
            (_, None | Some(Answer::Waited)) => match &self.abort {
                Some((response, percent)) if is_hit([e, f, g, h], *percent) => {
                    Flow::Deny(Denial { reason: "fault_injected", response: response.clone() })
                }
                _ => Flow::Continue,
            },
            (_, Some(_)) => Flow::Fail(failure("wait_failed")),
        }
    }
}

/// Whether a request with these random bytes is among `percent` of 100.
fn is_hit(random: [u8; 4], percent: u32) -> bool {
    u64::from(u32::from_le_bytes(random)).saturating_mul(100) >> 32 < u64::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_as_many_as_it_says() {
        for percent in [0, 1, 50, 99, 100] {
            let hits = (0..10_000_u32).filter(|n| is_hit(n.wrapping_mul(429_497).to_le_bytes(), percent)).count();
            assert!(hits.abs_diff(percent as usize * 100) <= 10, "{percent}: {hits}");
        }
        assert!(!is_hit([0; 4], 0) && is_hit([255; 4], 100));
    }
}
