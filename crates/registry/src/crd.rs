//! CustomResourceDefinitions as rows: naming, establishing, serving, deletion (spec: crd §2).
