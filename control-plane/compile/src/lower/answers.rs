//! Lowers the answers to requests whose chain cannot run, and chains and plans that refuse everything with them.

use postern_engine::{Response, answers};
use postern_model::{ErrorAnswer, Settings};
use postern_proto::plan::v1::{Answer, Chain, HeaderValue, OLDEST_FORMAT, Plan, Steps};

use super::{Lowering, Scope};

/// A chain that refuses every request. `unsupported` names the policies that cannot run.
pub(super) fn refusing(unsupported: Vec<u32>) -> Chain {
    Chain { request: Some(Steps { steps: Vec::new(), unsupported }), shadow: false, ..Chain::default() }
}

/// A plan that refuses every request, with the answer that the settings of the nodes' mesh say.
pub fn refusal(scope: &Scope<'_>) -> Plan {
    let mut lowering = Lowering::default();
    if let Some(settings) = scope.settings() {
        lowering.error_answers(&settings.spec);
    }
    let chain = refusing(vec![lowering.string("invalid-plan")]);
    lowering.plan.chains.push(chain);
    Plan { format: OLDEST_FORMAT, strings: lowering.strings.into_values(), default_chain: 1, ..lowering.plan }
}

impl Lowering {
    /// The answers of the settings. Each part that they do not say is the default's.
    pub(super) fn error_answers(&mut self, settings: &Settings) {
        let said = settings.policy_not_supported.as_ref();
        self.plan.policy_not_supported = said.map(|said| self.error_answer(said, &answers::policy_not_supported()));
        let said = settings.agent_unavailable.as_ref();
        self.plan.agent_unavailable = said.map(|said| self.error_answer(said, &answers::agent_unavailable()));
    }

    fn error_answer(&mut self, said: &ErrorAnswer, default: &Response) -> Answer {
        let headers = match &said.headers {
            Some(headers) => self.header_values(headers),
            None => default.headers.iter().map(|(name, value)| self.header_value(name, value)).collect(),
        };
        let body = String::from_utf8_lossy(&default.body);
        Answer {
            status: said.status.unwrap_or(default.status).into(),
            headers,
            body: self.string(said.body.as_deref().unwrap_or(&body)),
        }
    }

    fn header_value(&mut self, name: &str, value: &str) -> HeaderValue {
        HeaderValue { name: self.string(name), value: self.string(value) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use postern_engine::Plan as Loaded;
    use prost::Message;

    use super::*;

    fn lowered(said: ErrorAnswer) -> (u32, Vec<(String, String)>, String) {
        let mut lowering = Lowering::default();
        lowering.error_answers(&Settings { policy_not_supported: Some(said), ..Settings::default() });
        let answer = lowering.plan.policy_not_supported.unwrap();
        let strings = lowering.strings.into_values();
        let text = |index: u32| strings[usize::try_from(index).unwrap()].clone();
        let headers = answer.headers.iter().map(|header| (text(header.name), text(header.value))).collect();
        (answer.status, headers, text(answer.body))
    }

    fn defaults() -> (Vec<(String, String)>, String) {
        let headers = [("content-type", "application/json"), ("x-policy-error", "configuration")];
        let body = r#"{"error": "Policy configuration error", "code": "POLICY_NOT_SUPPORTED"}"#;
        (headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(), body.to_owned())
    }

    #[test]
    fn keeps_the_default_of_each_part_that_is_not_said() {
        let (headers, body) = defaults();
        let said = |status, headers, body: Option<&str>| ErrorAnswer { status, headers, body: body.map(str::to_owned) };
        assert_eq!(lowered(said(None, None, None)), (500, headers.clone(), body.clone()));
        assert_eq!(lowered(said(Some(503), None, None)), (503, headers.clone(), body.clone()));
        assert_eq!(lowered(said(None, None, Some("x"))), (500, headers, "x".to_owned()));
        let own = BTreeMap::from([("X-Own".to_owned(), "1".to_owned())]);
        assert_eq!(lowered(said(None, Some(own), None)), (500, vec![("x-own".to_owned(), "1".to_owned())], body));
        assert_eq!(lowered(said(None, Some(BTreeMap::new()), Some(""))).1, []);
    }

    #[test]
    fn refuses_every_route_without_any_resource() {
        let plan = Loaded::load(&refusal(&Scope::default()).encode_to_vec()).unwrap();
        assert_eq!((plan.chain_of("any"), plan.chain_of("")), (Some(0), Some(0)));
    }
}
