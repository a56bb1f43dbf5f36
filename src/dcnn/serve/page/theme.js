// Light, dark, or the system's theme; stored in the browser.

import { byId } from "./dom.js";

const NAMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
const NEXT = { auto: "light", light: "dark", dark: "auto" };

export function startTheme() {
  let theme = localStorage.getItem("dcnn-theme") || "auto";
  const button = byId("theme");
  const show = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = NAMES[theme];
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem("dcnn-theme", theme);
    show();
  });
  show();
}
