// A stand-in for a browser's page, for tests without one: elements with attributes, children and
// listeners. Reads the HTML file of the first argument, runs its scripts, and then the program that
// comes in on standard input, which sees `page`, `click`, `point`, `key` and `all`.
"use strict";

const fs = require("fs");
const vm = require("vm");

class Element {
  constructor(tagName) {
    Object.assign(this, { tagName: tagName.toUpperCase(), children: [], attributes: {}, listeners: {} });
    const names = () => (this.attributes.class || "").split(" ").filter(Boolean);
    this.classList = {
      contains: (name) => names().includes(name),
      toggle: (name, on) => {
        const others = names().filter((each) => each !== name);
        this.attributes.class = [...others, ...(on ? [name] : [])].join(" ");
      },
    };
  }
  setAttribute(name, value) { this.attributes[name] = `${value}`; }
  removeAttribute(name) { delete this.attributes[name]; }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  addEventListener(name, listener) { (this.listeners[name] ||= []).push(listener); }
  get firstChild() { return this.children[0]; }
  get textContent() {
    return this.children.map((each) => (each instanceof Element ? each.textContent : each)).join("");
  }
  set textContent(text) { this.children = [text]; }
  fire(name, event = {}) {
    const whole = { target: this, preventDefault() {}, ...event };
    (this.listeners[name] || []).forEach((listener) => listener(whole));
  }
}

const html = fs.readFileSync(process.argv[2], "utf8");
const named = {};
for (const [, tag, id] of html.matchAll(/<(\w+)[^>]* id="([\w-]+)"/g)) named[id] = new Element(tag);
const page = new Element("document");
Object.assign(page, {
  getElementById: (id) => named[id],
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
});
named.data.textContent = html.match(/<script type="application\/json" id="data">(.*?)<\/script>/s)[1];

function all(root, test) {
  const here = root.children.filter((each) => each instanceof Element);
  return here.flatMap((each) => [...(test(each) ? [each] : []), ...all(each, test)]);
}
const context = {
  document: page, page, all, console,
  at: (id) => named[id],
  click: (element) => element.fire("click"),
  point: (element) => element.fire("mouseenter"),
  leave: (element) => element.fire("mouseleave"),
  key: (name, element = page) => element.fire("keydown", { key: name }),
  withClass: (id, name) => all(named[id], (each) => each.classList.contains(name)),
};
const scripts = [...html.matchAll(/<script>(.*?)<\/script>/gs)].map(([, text]) => text);
vm.runInNewContext([...scripts, fs.readFileSync(0, "utf8")].join("\n"), context);
