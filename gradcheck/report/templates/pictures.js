// Pictures from trees of elements: [name, attributes, child, …], a child that is a string is text.

const DRAWS = new Set(["figure", "figcaption", "span", "ul", "li", "i", "p", "b"]);
const DRAWS_SVG = new Set(["svg", "g", "path", "circle", "rect", "line", "text", "title", "desc"]);
const DESCRIBES = /^(class|role|aria-label|viewBox|width|height|d|c?[xy]|r|[xy][12]|text-anchor|stroke-width|stroke-dasharray|font-size)$/;

function picture(tree) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [name, attributes, ...children] = tree;
  if (!DRAWS.has(name) && !DRAWS_SVG.has(name)) return document.createTextNode("");
  const space = DRAWS_SVG.has(name) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const element = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (DESCRIBES.test(key)) element.setAttribute(key, value);
  }
  element.append(...children.map(picture));
  return element;
}
