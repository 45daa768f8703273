//! Lines for an operator's log about chains that could not run (docs/rules.md, 6.5). How often one is written is the
//! host's decision.

use super::Run;
use crate::{
    chain::Step,
    text::json,
    verdict::{Decision, Verdict},
};

/// Why a chain could not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Nobody supports one of its policies, or it is not valid. It stays so until somebody changes that: an error.
    PolicyNotSupported,
    /// No agent of one of its policies is healthy. It may pass: a warning.
    AgentUnavailable,
}

impl Cause {
    /// Why a decision was made; `None` if the chain did run.
    #[inline(never)]
    pub fn of(decision: &Decision) -> Option<Self> {
        match decision.reason? {
            "policy_not_supported" => Some(Self::PolicyNotSupported),
            "agent_unavailable" => Some(Self::AgentUnavailable),
            _ => None,
        }
    }
}

impl Run {
    /// The line about a decision of this run, a JSON object. It also says how many like it were suppressed. `None` if
    /// the chain did run.
    #[cold]
    #[inline(never)]
    pub fn notice(&self, decision: &Decision, suppressed: u64) -> Option<String> {
        let cause = Cause::of(decision)?;
        let Verdict::Deny(response) = &decision.verdict else { return None };
        let steps = self.plan.chain(self.chain)?.steps(self.phase);
        let (message, [first, second], code) = match cause {
            Cause::PolicyNotSupported => (
                "policy not supported by any agent",
                ["unsupported_policies", "available_agents"],
                "POLICY_NOT_SUPPORTED",
            ),
            Cause::AgentUnavailable => {
                ("all supporting agents unhealthy", ["affected_policies", "unhealthy_agents"], "AGENT_UNAVAILABLE")
            }
        };
        let (mut named, mut agents) = (String::new(), String::new());
        for name in &steps.unsupported {
            push_name(&mut named, name);
        }
        for step in steps.steps.iter().filter(|step| cause == Cause::AgentUnavailable && self.is_unavailable(step)) {
            push_name(&mut named, &step.name);
        }
        let all = cause == Cause::PolicyNotSupported;
        for (index, agent) in self.plan.directory().agents.iter().enumerate() {
            if all || !self.health.is_healthy(index) {
                push_name(&mut agents, &agent.name);
            }
        }
        let retry = response.headers.iter().find(|(name, _)| &**name == "retry-after");
        let retry = retry.map_or_else(|| "null".to_owned(), |(_, value)| json::quote(value));
        let status = response.status;
        let route = json::quote(&self.route);
        Some(format!(
            r#"{{"message":"{message}","route":{route},"{first}":[{named}],"{second}":[{agents}],"error_type":"{code}","response_status":{status},"action":"IMMEDIATE_RESPONSE","retry_after":{retry},"suppressed":{suppressed}}}"#
        ))
    }

    /// Whether a step needs an agent, and none of its agents is healthy.
    #[inline(never)]
    pub(super) fn is_unavailable(&self, step: &Step) -> bool {
        step.policy.agents().is_some_and(|agents| !agents.iter().any(|agent| self.health.is_healthy(*agent)))
    }
}

/// Adds a name to a list. Names of policies and agents need no quoting.
#[inline(never)]
fn push_name(list: &mut String, name: &str) {
    list.push_str(if list.is_empty() { "\"" } else { ",\"" });
    list.push_str(name);
    list.push('"');
}
