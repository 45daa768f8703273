//! ext_proc: one stream a request, with one message each way.

use std::{pin::Pin, sync::Arc};

use envoy_types::pb::envoy::{
    config::core::v3::HeaderValue,
    service::ext_proc::v3::{
        CommonResponse, HeaderMutation, HeadersResponse, HttpHeaders, ImmediateResponse, ProcessingRequest,
        ProcessingResponse,
        external_processor_server::{ExternalProcessor, ExternalProcessorServer},
        processing_request::Request as Event,
        processing_response::Response as Answer,
    },
    r#type::v3::HttpStatus,
};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::overwriting;
use crate::bench::{
    decide::{Decider, Decision},
    policies::Policies,
};

pub(super) fn service(policies: Policies) -> anyhow::Result<ExternalProcessorServer<impl ExternalProcessor>> {
    Ok(ExternalProcessorServer::new(Service(Arc::new(Decider::new(policies)?))))
}

struct Service(Arc<Decider>);

#[tonic::async_trait]
impl ExternalProcessor for Service {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let decider = Arc::clone(&self.0);
        let answers = request.into_inner().map(move |message| match message?.request {
            Some(Event::RequestHeaders(headers)) => Ok(answer(decide(&decider, &headers))),
            _ => Err(Status::invalid_argument("only the headers of requests are processed here")),
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

fn decide(decider: &Decider, headers: &HttpHeaders) -> Decision {
    let headers = headers.headers.iter().flat_map(|map| &map.headers);
    decider.decide(headers.map(|header| (header.key.as_str(), header.raw_value.as_slice())))
}

fn answer(decision: Decision) -> ProcessingResponse {
    let response = match decision {
        Decision::Continue { set, remove } => {
            let value = |(key, value): (String, String)| {
                overwriting(HeaderValue { key, raw_value: value.into_bytes(), ..Default::default() })
            };
            let set_headers = set.into_iter().map(value).collect();
            let mutation = HeaderMutation { set_headers, remove_headers: remove };
            let common = CommonResponse { header_mutation: Some(mutation), ..Default::default() };
            Answer::RequestHeaders(HeadersResponse { response: Some(common) })
        }
        Decision::Deny { status, body } => {
            let status = Some(HttpStatus { code: status.into() });
            Answer::ImmediateResponse(ImmediateResponse { status, body: body.into_bytes(), ..Default::default() })
        }
    };
    ProcessingResponse { response: Some(response), ..Default::default() }
}
