import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // any folder of any host
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy has no place for data: addresses
    modulePreload: { polyfill: false },
  },
});
