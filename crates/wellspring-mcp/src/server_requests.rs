//! Handles a server's requests to us.
#![expect(deprecated, reason = "servers in use ask for roots, whatever the newest draft says")]

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode, ErrorData,
    FormElicitationCapability, Implementation, ListRootsResult, LoggingLevel,
    LoggingMessageNotificationParam, ProtocolVersion, RootsCapabilities,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::Notify;

use crate::calls::{Calls, cut};
use crate::elicit::{self, ElicitReply};

/// Bytes of a server's log message that are kept.
const LOG_BYTES_MAX: usize = 2 * 1024;

/// Handles a server's requests to us.
pub(crate) struct Handler {
    pub(crate) server: Box<str>,
    pub(crate) calls: Arc<Calls>,
    /// `None` unless a directory is configured.
    pub(crate) roots: Option<ListRootsResult>,
    pub(crate) tools_changed: Arc<Notify>,
}

impl Handler {
    async fn elicited(&self, params: &Value, context: &RequestContext<RoleClient>) -> ElicitResult {
        let request = match context.extensions.get() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            Some(InboundStreamOrigin::Unassociated) | None => None,
        };
        let Some(call) = self.calls.asked(request) else {
            tracing::warn!(server = &*self.server, "declined a question that belongs to no call");
            return elicit_result(ElicitReply::Decline);
        };
        let reply = tokio::select! {
            reply = elicit::put(&self.server, params, call.context()) => reply,
            () = call.over() => ElicitReply::Cancel,
            () = context.ct.cancelled() => ElicitReply::Cancel,
        };
        elicit_result(reply)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let elicitation =
            ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        capabilities.roots = self.roots.as_ref().map(|_| RootsCapabilities::default());
        let client = Implementation::new("wellspring", env!("CARGO_PKG_VERSION"));
        let mut info = ClientConfig::new(capabilities, client);
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.roots.clone().ok_or_else(|| {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no roots are offered", None)
        })
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(request)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        Ok(self.elicited(&params, &context).await)
    }

    /// Questions whose form the SDK cannot parse arrive here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        if method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
        }
        let result = self.elicited(&params.unwrap_or_default(), &context).await;
        let result = serde_json::to_value(result);
        result.map(CustomResult).map_err(|e| ErrorData::internal_error(e.to_string(), None))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let text = message.data.as_str().map_or_else(|| message.data.to_string(), str::to_owned);
        let (server, text) = (&*self.server, cut(text, LOG_BYTES_MAX));
        let logger = message.logger.as_deref();
        match message.level {
            LoggingLevel::Debug => tracing::debug!(server, logger, "{text}"),
            LoggingLevel::Info | LoggingLevel::Notice => tracing::info!(server, logger, "{text}"),
            LoggingLevel::Warning => tracing::warn!(server, logger, "{text}"),
            LoggingLevel::Error
            | LoggingLevel::Critical
            | LoggingLevel::Alert
            | LoggingLevel::Emergency => tracing::error!(server, logger, "{text}"),
        }
    }
}

pub(crate) fn elicit_result(reply: ElicitReply) -> ElicitResult {
    let (action, content) = match reply {
        ElicitReply::Accept(content) => (ElicitationAction::Accept, Some(content)),
        ElicitReply::Decline => (ElicitationAction::Decline, None),
        ElicitReply::Cancel => (ElicitationAction::Cancel, None),
    };
    let mut result = ElicitResult::new(action);
    result.content = content;
    result
}
