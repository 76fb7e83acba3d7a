// Elements, and the little Markdown that models write. Text from agents becomes text nodes,
// never HTML.

/** An element with a class and children. Strings become text nodes. */
export function el(tag, name, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...children);
  return node;
}

/** A button that is not a submit button. */
export function button(label, name, act) {
  const node = el("button", name, label);
  node.type = "button";
  node.onclick = act;
  return node;
}

/** A link, if the address is one that a page may open; otherwise just the text. */
export function link(text, url) {
  if (!/^(https?:\/\/|mailto:)/i.test(url ?? "")) return text;
  const node = el("a", "", text);
  node.href = url;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

function inline(text) {
  const nodes = [];
  for (const piece of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*|\*[^*\s][^*\n]*\*|\[[^\]\n]+\]\([^)\s]+\))/)) {
    const linked = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(piece);
    if (/^`[^`]+`$/.test(piece)) nodes.push(el("code", "", piece.slice(1, -1)));
    else if (/^\*\*[^*]+\*\*$/.test(piece)) nodes.push(el("strong", "", piece.slice(2, -2)));
    else if (/^\*[^*]+\*$/.test(piece)) nodes.push(el("em", "", piece.slice(1, -1)));
    else if (linked) nodes.push(link(linked[1], linked[2]));
    else if (piece) nodes.push(piece);
  }
  return nodes;
}

/** Markdown as elements: paragraphs, headings, lists, code and links. */
export function markdown(text) {
  const nodes = [];
  let list;
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) {
      const lines = paragraph.flatMap((line, at) => (at ? [el("br"), ...inline(line)] : inline(line)));
      nodes.push(el("p", "", ...lines));
    }
    paragraph = [];
    list = undefined;
  };
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    const item = /^\s*([-*•]|\d+[.)])\s+(.*)$/.exec(line);
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    if (line.startsWith("```")) {
      flush();
      const code = [];
      while (++at < lines.length && !lines[at].startsWith("```")) code.push(lines[at]);
      nodes.push(el("pre", "", el("code", "", code.join("\n"))));
    } else if (heading) {
      flush();
      nodes.push(el("h3", "", ...inline(heading[1])));
    } else if (item) {
      const tag = /\d/.test(item[1]) ? "ol" : "ul";
      if (list?.localName !== tag) {
        flush();
        nodes.push((list = el(tag)));
      }
      list.append(el("li", "", ...inline(item[2])));
    } else if (line.trim() === "") {
      flush();
    } else {
      if (list) flush();
      paragraph.push(line);
    }
  }
  flush();
  return nodes;
}
