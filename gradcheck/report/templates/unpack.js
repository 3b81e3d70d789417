"use strict";
// What is packed in the page: unpacked when it is asked for, once. What stands below is
// enhancement only: without it, everything but the details of what passes is on the page.

const unpacked = new Map();

function unpack(element) {
  if (!unpacked.has(element)) unpacked.set(element, inflated(element.content.textContent));
  return unpacked.get(element);
}

async function inflated(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

// A line of prose as nodes: `code` between backticks, as prose.py has it.
function prose(text) {
  return text.split(/(?<!`)`([^`\s](?:[^`]*[^`\s])?)`(?!`)/).map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

// An element with attributes and children; a child that is a string is text, whatever it holds.
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.flat().filter((child) => child !== null && child !== ""));
  return element;
}
