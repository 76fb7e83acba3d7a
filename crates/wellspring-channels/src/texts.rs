//! Our own messages in a chat, in all supported languages.

use serde::{Deserialize, Serialize};

/// The language of our own messages. Answers are in the model's language.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Portuguese.
    Portuguese,
}

impl Language {
    /// The language for an IETF tag such as `pt-BR`, as networks give it.
    ///
    /// ```
    /// use wellspring_channels::Language;
    ///
    /// assert_eq!(Language::of_tag("pt-BR"), Some(Language::Portuguese));
    /// assert_eq!(Language::of_tag("fr"), None);
    /// ```
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<Self> {
        match tag.split(['-', '_']).next() {
            Some("pt") => Some(Self::Portuguese),
            Some("en") => Some(Self::English),
            Some(_) | None => None,
        }
    }
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $english:literal, $portuguese:literal;)*) => {
        impl Language {$(
            $(#[$doc])*
            pub(crate) const fn $name(self) -> &'static str {
                match self { Self::English => $english, Self::Portuguese => $portuguese }
            }
        )*}
    };
}

texts! {
    thinking: "🧠 Thinking…", "🧠 Pensando…";
    thoughts: "🧠 Thoughts", "🧠 Raciocínio";
    long_answer: "⏳ Long answer…", "⏳ Resposta longa…";
    stopped: "⏹ Stopped.", "⏹ Interrompido.";
    failed: "⚠️ Something went wrong", "⚠️ Algo deu errado";
    empty: "(no answer)", "(sem resposta)";
    approve: "✅ Approve", "✅ Aprovar";
    deny: "❌ Deny", "❌ Negar";
    approved: "✅ Approved", "✅ Aprovado";
    denied: "❌ Denied", "❌ Negado";
    answered: "✔️ Answered", "✔️ Respondido";
    expired: "⌛ Expired", "⌛ Expirado";
    withdrawn: "➖ No longer needed", "➖ Não é mais necessário";
    not_yours: "Only the person who asked, or an approver, may answer this.",
        "Só quem perguntou, ou um aprovador, pode responder.";
    too_late: "This question was answered already, or has expired.",
        "Esta pergunta já foi respondida ou expirou.";
    noted: "Noted.", "Anotado.";
    bad_value: "That does not fit:", "Isso não serve:";
    field: "Please answer with a message:", "Responda com uma mensagem:";
    not_allowed: "You may not use this bot yet. Give this code to its operator:",
        "Você ainda não pode usar este bot. Informe este código ao operador:";
    nothing_to_stop: "There is nothing to stop.", "Não há nada para interromper.";
    stopping: "⏹ Stopping…", "⏹ Interrompendo…";
    new_thread: "🆕 A new conversation begins.", "🆕 Uma nova conversa começa.";
    agents: "Agents:", "Agentes:";
    agent_now: "The agent is now", "O agente agora é";
    no_agent: "There is no agent", "Não existe o agente";
    thinking_usage: "Use /thinking on, /thinking off or /thinking auto.",
        "Use /thinking on, /thinking off ou /thinking auto.";
    thinking_now: "Thoughts are now", "O raciocínio agora está";
    help: "Write to me. /stop stops an answer, /new begins a new conversation, /agent chooses the agent, /thinking on|off|auto shows or hides thoughts.",
        "Escreva para mim. /stop interrompe, /new começa uma nova conversa, /agent escolhe o agente, /thinking on|off|auto mostra ou esconde o raciocínio.";
    too_many: "Too many messages are waiting. Please send this one again later.",
        "Há mensagens demais na fila. Envie esta novamente mais tarde.";
    not_started: "⚠️ Could not start:", "⚠️ Não foi possível iniciar:";
}
