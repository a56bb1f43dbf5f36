// The OpenAPI document as a page.

import { byId, make } from "./dom.js";
import { startTheme } from "./theme.js";

startTheme();
const description = await (await fetch("/openapi.json")).json();
byId("about").textContent = description.info.description;
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(methods)) byId("endpoints").append(endpoint(path, method, operation));
}

function endpoint(path, method, operation) {
  const body = operation.requestBody?.content?.["application/json"];
  const given = (operation.parameters ?? []).map((one) => [one.name, one.description, one.required]);
  const fields = Object.entries(body?.schema?.properties ?? {}).map(([name, field]) => [name, field.description, body.schema.required?.includes(name)]);
  const others = Object.entries(operation.responses).filter(([status]) => status !== "200");
  return make("section", { class: "endpoint" },
    make("h3", {}, make("span", { class: "method" }, method.toUpperCase()), make("code", {}, path)),
    make("p", {}, operation.description),
    make("pre", {}, curl(path, method, operation, body)),
    table(given, "query parameter"), table(fields, "field of the JSON body"),
    others.length ? make("p", { class: "note" }, others.map(([status, answer]) => `${status}: ${answer.description}`).join(" \u00b7 ")) : null);
}

function curl(path, method, operation, body) {
  const address = location.origin + path;
  if (body) return `curl ${address} -d '${JSON.stringify(body.example)}'`;
  if (method === "post") return `curl "${address}?name=reviews.csv" --data-binary @reviews.csv`;
  return `curl ${address}`;
}

function table(rows, where) {
  if (!rows.length) return null;
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, make("th", {}, where), make("th", {}))),
    make("tbody", {}, ...rows.map(([name, about, required]) => make("tr", {}, make("td", {}, make("code", {}, name), required ? " (required)" : ""), make("td", {}, about ?? ""))))));
}
