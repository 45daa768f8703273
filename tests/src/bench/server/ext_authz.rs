//! ext_authz: one call a request.

use envoy_types::pb::{
    envoy::{
        config::core::v3::HeaderValue,
        service::auth::v3::{
            CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
            authorization_server::{Authorization, AuthorizationServer},
            check_response::HttpResponse,
        },
        r#type::v3::HttpStatus,
    },
    google::rpc,
};
use tonic::{Code, Request, Response, Status};

use super::overwriting;
use crate::bench::{
    decide::{Decider, Decision},
    policies::Policies,
};

pub(super) fn service(policies: Policies) -> anyhow::Result<AuthorizationServer<impl Authorization>> {
    Ok(AuthorizationServer::new(Service(Decider::new(policies)?)))
}

struct Service(Decider);

#[tonic::async_trait]
impl Authorization for Service {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let request = request.into_inner().attributes.and_then(|attributes| attributes.request?.http);
        let headers = request.map(|request| request.headers).unwrap_or_default();
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        Ok(Response::new(answer(self.0.decide(headers))))
    }
}

fn answer(decision: Decision) -> CheckResponse {
    let (code, response) = match decision {
        Decision::Continue { set, remove } => {
            let value = |(key, value)| overwriting(HeaderValue { key, value, ..Default::default() });
            let headers = set.into_iter().map(value).collect();
            let response = OkHttpResponse { headers, headers_to_remove: remove, ..Default::default() };
            (Code::Ok, HttpResponse::OkResponse(response))
        }
        Decision::Deny { status, body } => {
            let status = Some(HttpStatus { code: status.into() });
            (
                Code::Unauthenticated,
                HttpResponse::DeniedResponse(DeniedHttpResponse { status, body, ..Default::default() }),
            )
        }
    };
    let status = rpc::Status { code: code.into(), ..Default::default() };
    CheckResponse { status: Some(status), http_response: Some(response), ..Default::default() }
}
