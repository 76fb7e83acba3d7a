//! One answer in a chat, from its source's point of view.

use wellspring_wire::stream_delta::StreamDelta;

use crate::channel::{Capabilities, StreamSender};
use crate::instance::Instance;
use crate::schedule::{PostState, Preview};
use crate::state::answer_key;
use crate::view::{View, render, stopped};

/// A view of one answer, for every network: each state replaces the previous one.
#[derive(Debug)]
pub(crate) struct Sender {
    instance: Instance,
    chat: Box<str>,
    key: Box<str>,
    /// The text so far.
    said: String,
    tool: Option<Box<str>>,
    last: Option<StreamDelta>,
}

impl Sender {
    pub(crate) fn new(
        instance: &Instance,
        chat: &str,
        reply_to: Option<&str>,
        topic: Option<&str>,
    ) -> Self {
        let key = answer_key(reply_to.unwrap_or_default());
        let state = PostState {
            key: key.clone(),
            reply_to: reply_to.map(Into::into),
            topic: topic.map(Into::into),
            preview: instance.preview(chat),
            ..PostState::default()
        };
        instance.open(chat, state);
        let (said, tool, last) = (String::new(), None, None);
        Self { instance: instance.clone(), chat: chat.into(), key, said, tool, last }
    }

    fn show(&mut self, delta: &StreamDelta) {
        self.last = Some(delta.clone());
        let view = View { delta: delta.clone(), tool: self.tool.clone(), said: self.said.clone() };
        let reader = self.instance.reader(&self.chat);
        let bodies = render(&view, reader, self.instance.capabilities());
        self.instance.want(&self.chat, &self.key, bodies, view.is_settled());
    }
}

impl StreamSender for Sender {
    fn on_thinking_delta(&mut self, delta: &StreamDelta) {
        if let StreamDelta::Thinking { .. } = delta {
            self.show(delta);
        }
    }

    fn on_content_delta(&mut self, delta: &StreamDelta) {
        if let StreamDelta::Content { content, .. } = delta {
            self.said.clone_from(content);
            self.show(delta);
        }
    }

    fn on_final(&mut self, delta: &StreamDelta) {
        if let StreamDelta::Final { .. } = delta {
            self.show(delta);
        }
    }

    fn on_error(&mut self, delta: &StreamDelta) {
        if let StreamDelta::Error { .. } = delta {
            self.show(delta);
        }
    }

    fn on_tool(&mut self, line: Option<&str>) {
        if self.tool.as_deref() == line {
            return;
        }
        self.tool = line.map(Into::into);
        let last = self.last.take().unwrap_or_else(|| StreamDelta::Thinking {
            thinking: String::new(),
            thinking_elapsed_ms: 0,
        });
        if line.is_some() || !matches!(last, StreamDelta::Final { .. } | StreamDelta::Error { .. })
        {
            self.show(&last);
        }
    }

    fn abort(&mut self) {
        let reader = self.instance.reader(&self.chat);
        let bodies = match self.said.trim() {
            "" => Vec::new(),
            said => stopped(said, reader.language, self.instance.capabilities()),
        };
        self.instance.want(&self.chat, &self.key, bodies, true);
    }
}

/// How an answer is shown while it grows.
pub(crate) const fn preview(streams: bool, drafts: bool, can: &Capabilities) -> Preview {
    match (streams && can.can_stream_response, drafts && can.can_draft) {
        (true, true) => Preview::Draft,
        (true, false) if can.can_append => Preview::Append,
        (true, false) => Preview::Edit,
        (false, _) => Preview::Off,
    }
}
