//! Compares the outcome of a case with the expected one.

use serde_json::Value;

use crate::{
    case::{Case, Want},
    observation::Observation,
};

impl Case {
    /// All differences between the outcomes and the expected ones.
    pub fn complaints(&self, outcomes: &[Observation]) -> Vec<String> {
        let exchanges = self.exchanges();
        assert_eq!(exchanges.len(), outcomes.len());
        exchanges.iter().zip(outcomes).flat_map(|(exchange, outcome)| exchange.want.complaints(outcome)).collect()
    }
}

impl Want {
    fn complaints(&self, outcome: &Observation) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut compare = |what: &str, got: String, want: String| {
            if got != want {
                complaints.push(format!("{what} is `{got}` instead of `{want}`"));
            }
        };
        compare("the account", outcome.account.clone(), self.account());
        if let Some(status) = self.status {
            compare("the status", outcome.status.to_string(), status.to_string());
        }
        if let Some(body) = &self.body {
            compare("the body", outcome.body.clone(), body.clone());
        }
        for (name, value) in &self.headers {
            compare(name, joined(outcome.headers.get(name)), value.clone().unwrap_or("(absent)".into()));
        }
        for (name, value) in &self.upstream {
            let got = joined(outcome.upstream.as_ref().and_then(|headers| headers.get(name)));
            compare(&format!("upstream {name}"), got, value.clone().unwrap_or("(absent)".into()));
        }
        for (what, got, want) in
            [("a record", &outcome.records, &self.records), ("a post", &outcome.posted, &self.posted)]
        {
            let want: Vec<_> = want.iter().flatten().map(Value::to_string).collect();
            if *got != want {
                complaints.push(format!("{what} is not as wanted: {got:#?} instead of {want:#?}"));
            }
        }
        complaints
    }
}

fn joined(values: Option<&Vec<String>>) -> String {
    values.filter(|values| !values.is_empty()).map_or("(absent)".into(), |values| values.join(","))
}
